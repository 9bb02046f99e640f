package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// watchdogScript waits for the end of its standard input, a pipe whose other end only our process
// holds. The kernel closes that end however we die, so no signal handler, deferred call or
// cooperation of the test is needed. Alternatives not taken: PR_SET_PDEATHSIG (Linux only, and tied
// to the *thread* that forked), a re-exec of our own binary (every TestMain and main would have to
// take part).
//
// The rename comes first. A process registers itself by writing $1/pid before it becomes the
// server, so after the rename none can be added, and all that were added are seen.
//
// PostgreSQL gets SIGQUIT before SIGKILL, because only a postmaster that ends itself frees its
// shared memory. ipcrm does it for one that was killed (the segment's id is the second word of line
// 7 of postmaster.pid).
const watchdogScript = `
dir=$1 last=$2
cat >/dev/null
mv "$dir" "$dir.gone" || exit 1
if read -r pid <"$dir.gone/pid"; then
	kill "-$last" "$pid"
	n=0
	while [ $n -lt 50 ] && kill -0 "$pid"; do sleep 0.1; n=$((n + 1)); done
	kill -KILL "-$pid"
	rm -f "/dev/shm/faketime_shm_$pid" "/dev/shm/sem.faketime_sem_$pid" # as forgetClock
fi
{ read -r _; read -r _; read -r _; read -r _; read -r _; read -r _; read -r _ shm; } <"$dir.gone/data/postmaster.pid" &&
	ipcrm -m "$shm"
umount "$dir.gone/data" # where it is a small disk
rm -rf "$dir.gone"
`

// registerScript becomes the program it is given, after leaving its process id for the watchdog.
// Where the directory has been taken away already, it does not become it.
const registerScript = `echo $$ >"$1/pid" && shift && exec "$@"`

// watchdog ends the process registered in dir, and removes dir, when release is called or our
// process is gone.
type watchdog struct {
	dir   string
	cmd   *exec.Cmd
	leash io.Closer // our end of the pipe
}

func startWatchdog(dir string, last syscall.Signal) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "watchdog", dir, strconv.Itoa(int(last)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // outlives Ctrl-C and a killed process group
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	return &watchdog{dir: dir, cmd: cmd, leash: leash}, nil
}

// command is argv with its registration before it.
func (w *watchdog) command(argv []string) *exec.Cmd {
	return exec.Command("/bin/sh", append([]string{"-c", registerScript, "register", w.dir}, argv...)...)
}

// forget is called once the registered process is reaped, so that a later process with the same id
// is left alone.
func (w *watchdog) forget() { _ = os.Remove(filepath.Join(w.dir, "pid")) }

// release lets the watchdog do its work and waits for it.
func (w *watchdog) release() error {
	err := errors.Join(w.leash.Close(), w.cmd.Wait())
	if err != nil {
		return fmt.Errorf("remove %s: %w", w.dir, err)
	}
	return nil
}
