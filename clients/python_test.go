package clients

import (
	"os/exec"
	"testing"
)

// python returns the Python that has psycopg: a virtual environment's, or the system's with
// Debian's package.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import psycopg").Run() == nil {
			return name
		}
	}
	t.Fatal("no Python has psycopg: apt-get install python3-psycopg, or pip install 'psycopg[binary]'")
	return ""
}

// unittest runs a file of the Python client's tests.
func (w *world) unittest(file string) {
	w.t.Helper()
	w.run("python", "env", "PYTHONPATH=src", python(w.t), "-m", "unittest", "-v", "tests/"+file)
}

func TestProducer(t *testing.T) {
	t.Parallel()
	newWorld(t).unittest("test_postgres.py")
}
