package install

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A program says one version wherever it says one: to who asks it, to its database and to those
// that it sends to.
func TestOneVersion(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	path, err := binary()
	noError(t, err)
	database := testenv.Database(t)
	noError(t, pgmigrations.Up(t.Context(), database, pgmigrations.Sets...))
	agents := make(chan string, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case agents <- r.UserAgent():
		default:
		}
	}))
	defer hook.Close()
	endpoints := filepath.Join(t.TempDir(), "endpoints.yaml")
	noError(t, os.WriteFile(endpoints, []byte("endpoints:\n  - name: order.placed\n    url: "+hook.URL+
		"\n    secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=]\n"), 0o600))
	outbox := func(args ...string) *exec.Cmd {
		cmd := exec.Command(path, args...)
		cmd.Env = append(os.Environ(), "OUTBOX_DATABASE_URL="+database)
		return cmd
	}
	serving := start(t, outbox("serve", "--auth", "none", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0",
		"--sink", "default="+testenv.RedisServer(t).URL(), "--sink", "hooks=webhook:"+endpoints+"?allow=private,http",
		"--routes", "outbox_events=hooks"))

	if text := testenv.Run(t, outbox("version")); !strings.Contains(text, stamped+" ") {
		t.Errorf("outbox version prints\n%s", text)
	}
	var printed struct{ Version string }
	noError(t, json.Unmarshal([]byte(testenv.Run(t, outbox("version", "-o", "json"))), &printed))
	said(t, "outbox version -o json", printed.Version, stamped)

	said(t, "outbox_build_info", get(t, serving, "listening", "/metrics"),
		`outbox_build_info{goversion="go[^"]*",version="`+regexp.QuoteMeta(stamped)+`"} 1`)
	var api struct{ Info struct{ Version string } }
	noError(t, json.Unmarshal([]byte(get(t, serving, "serving the API", "/openapi.json")), &api))
	said(t, "OpenAPI", api.Info.Version, stamped)

	write := outbox("write", "--topic", "order.placed")
	write.Stdin = strings.NewReader("{}")
	testenv.Run(t, write)
	select {
	case agent := <-agents:
		said(t, "User-Agent", agent, `^outbox-webhook/`+stamped+` \(\+https://`)
	case <-serving.ended:
		t.Fatal("it ended")
	}

	conn, err := pgx.Connect(t.Context(), database)
	noError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT DISTINCT application_name FROM pg_stat_activity "+
		"WHERE datname = current_database() AND pid <> pg_backend_pid()")
	noError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	noError(t, err)
	for _, name := range names {
		said(t, "application_name", name, "^outbox [a-z]+ "+stamped+"( [0-9a-f]{6}/[0-9a-f]{3})?$") // a relay's settings
	}
	for _, part := range []string{"relay", "gateway", "worker"} {
		said(t, "pg_stat_activity", strings.Join(names, ","), "outbox "+part+" ")
	}
}

// said complains of what somebody says of himself.
func said(t *testing.T, who, text, want string) {
	t.Helper()
	if !regexp.MustCompile(want).MatchString(text) {
		t.Errorf("%s says %q, want %s", who, text, want)
	}
}

// get asks a process at the address that its log names in the line of a message.
func get(t *testing.T, p *process, message, path string) string {
	t.Helper()
	line := regexp.MustCompile(`"msg":"` + message + `","address":"([^"]+)"`)
	var found []string
	testenv.Eventually(t, "it says "+message, func() bool {
		found = line.FindStringSubmatch(p.log())
		select {
		case <-p.ended:
			t.Fatalf("it ended: %s", p.log())
		default:
		}
		return found != nil
	})
	res, err := http.Get("http://" + found[1] + path)
	noError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	noError(t, err)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, res.StatusCode, body)
	}
	return string(body)
}
