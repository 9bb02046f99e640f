package config

import (
	"strings"
	"testing"
)

// Memory takes the place of Redis, where both ends of it are in the process.
func TestMemory(t *testing.T) {
	database := "OUTBOX_DATABASE_URL=postgres://h/d"
	for _, f := range []struct {
		name, file string
		environ    []string
		args       string
		needs      Need
		says       string
	}{
		{"serve", "", nil, "--memory", Parts, ""},
		{"variable", "", []string{"OUTBOX_MEMORY=true"}, "", Parts, ""},
		{"file", "memory: true\n", nil, "--worker=false", Parts, ""},
		{"with Redis", "", []string{"REDIS_URL=redis://u:hunter2@h"}, "--memory", Parts,
			"memory and redis are both set, and events go to one of them: drop --memory"},
		{"without relay", "", nil, "--memory --relay=false", Parts, "turn both on"},
		{"without gateway", "", nil, "--memory --gateway=false", Parts, "turn both on"},
		{"relay alone", "memory: true\n", []string{"REDIS_URL=redis://h"}, "", Database | Redis | Serving | Retaining,
			"run outbox serve, or turn memory off"},
		{"tail", "", []string{"OUTBOX_MEMORY=1", "REDIS_URL=redis://h"}, "", Redis, "/v1/stream?topics="},
		{"a command without Redis", "memory: true\n", nil, "", Database, ""},
		{"off", "", nil, "--memory=false", Parts, "or give --memory"},
	} {
		c, err := load(t, f.file, append(f.environ, database), strings.Fields(f.args)...)
		if err != nil {
			t.Fatal(err)
		}
		if err = c.Check(f.needs); f.says != "" {
			wantProblems(t, err, f.says)
		} else if err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the password is shown: %v", f.name, err)
		}
	}
}

func TestSQLiteURLs(t *testing.T) {
	for url, file := range map[string]string{
		"sqlite:outbox.db": "outbox.db", "sqlite://outbox.db": "outbox.db", "sqlite:/var/lib/o.db": "/var/lib/o.db",
		"sqlite:///var/lib/o.db": "/var/lib/o.db",
		"sqlite:./~a b#d@e.db":   "./~a b#d@e.db", "postgres://h/d": "",
	} {
		if got, ok := SQLiteFile(url); got != file && ok || ok != (file != "") {
			t.Errorf("%s: got %q, %t", url, got, ok)
		}
		c, err := load(t, "", nil, "--database", url)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Check(Database); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if file != "" && MaskDatabase(url) != file {
			t.Errorf("%s is shown as %q", url, MaskDatabase(url))
		}
	}
	for _, url := range []string{"sqlite:", "sqlite://", "sqlite::memory:", "sqlite:x.db?mode=ro"} {
		c, err := load(t, "", nil, "--database", url)
		if err != nil {
			t.Fatal(err)
		}
		wantProblems(t, c.Check(Database), "sqlite:outbox.db")
	}
	c, err := load(t, "", nil, "--database", "sqlite:~/x.db")
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, c.Check(Database), `"sqlite:$HOME/x.db"`)
}
