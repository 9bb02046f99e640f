package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// skewed builds the command once more, with a standard library whose wall clock is
// OUTBOX_CLOCK_SECONDS off, as on a machine without NTP; the monotonic clock and timers are right,
// as there.
//
// Not libfaketime, which is the usual way: it stands between a program and libc, and a Go program
// reads the clock in the kernel's vDSO without libc, even when it is linked with it (tried both
// ways: no effect). A time namespace moves the monotonic clocks only.
var skewed = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	const now = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	changed := bytes.Replace(source, []byte(now), []byte(strings.Replace(now, "\n", "\n\tsec += clockSeconds()\n", 1)), 1)
	if bytes.Equal(changed, source) {
		return "", errors.New("time.Now does not look as expected: adapt this test to the new Go version")
	}
	changed = append(changed, `
var clockSeconds = sync.OnceValue(func() (n int64) {
	s, _ := syscall.Getenv("OUTBOX_CLOCK_SECONDS")
	for _, digit := range []byte(s) {
		if digit == '-' {
			defer func() { n = -n }()
			continue
		}
		n = 10*n + int64(digit-'0')
	}
	return n
})
`...)
	changed = bytes.Replace(changed, []byte("import ("), []byte("import (\n\t\"sync\"\n\t\"syscall\""), 1)
	program, err := binary()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(program)
	replacement, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(replacement, changed, 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", err
	}
	return testenv.BuildCommand("-tags=fault", "-overlay="+overlay)
})
