package app

import (
	"strings"
	"testing"
)

func TestFileURLs(t *testing.T) {
	for url, file := range map[string]string{
		"sqlite:outbox.db": "outbox.db", "sqlite://outbox.db": "outbox.db", "sqlite:/var/lib/o.db": "/var/lib/o.db",
		"sqlite:///var/lib/o.db": "/var/lib/o.db",
		"sqlite:./~a b#d@e.db":   "./~a b#d@e.db", "postgres://h/d": "",
	} {
		if got, ok := FileOf(url); got != file && ok || ok != (file != "") {
			t.Errorf("%s: got %q, %t", url, got, ok)
		}
		if err := CheckDatabase(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if file != "" && (MaskDatabase(url) != file || databases{}.Show(url) != "sqlite:"+file) {
			t.Errorf("%s is shown as %q and %q", url, MaskDatabase(url), databases{}.Show(url))
		}
	}
	for url, says := range map[string]string{
		"sqlite:": "sqlite:outbox.db", "sqlite://": "sqlite:outbox.db", "sqlite::memory:": "sqlite:outbox.db",
		"sqlite:x.db?mode=ro": "sqlite:outbox.db", "sqlite:~/x.db": `"sqlite:$HOME/x.db"`,
	} {
		if err := CheckDatabase(url); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", url, err, says)
		}
	}
}

func TestPasswordsStayHidden(t *testing.T) {
	for _, url := range []string{
		"postgres://u:hunter2@h:5432/db", "postgres://u:hunter2/x@h/db", "postgres://u:12/hunter2@h/db",
		"postgres://u:1@hunter2@h/db",
		"postgres://u:%zzhunter2@h/db", "host=h password=hunter2 port=x", "host=h password=hunter2",
		"postgres://h/db?password=hunter2", "hunter2", "mysql://u:hunter2@h/db", "mysql://h/db?password=hunter2",
	} {
		if shown := MaskDatabase(url) + (databases{}).Show(url); strings.Contains(shown, "hunter2") {
			t.Errorf("%s is shown as %s", url, shown)
		}
		if err := CheckDatabase(url); err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, want := range map[string]string{"postgres://u:p@db.internal:6543/shop": "shop at db.internal:6543",
		"host=/tmp/x dbname=d": "d at /tmp/x:5432", "mysql://h/d": "(no valid URL)"} {
		if got := MaskDatabase(url); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	if err := CheckDatabase("mysql://h/d?a=b"); err == nil || !strings.Contains(err.Error(),
		"want postgres://user:password@host:5432/database, or sqlite:outbox.db") {
		t.Errorf("got %v", err)
	}
}

func FuzzMaskDatabase(f *testing.F) {
	f.Add("12/34", "@")
	f.Add("a@b#", "?x")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2secret"
		// Whatever stands around it: what is between the colon and the last @ is a password.
		if strings.Contains(after, "@") || strings.Contains(before, "://") {
			return
		}
		url := "postgres://user:" + before + secret + after + "@host:1/0"
		shown := MaskDatabase(url)
		if err := CheckDatabase(url); err != nil {
			shown += err.Error()
		}
		if strings.Contains(shown, secret) {
			t.Errorf("%q is shown as %q", url, shown)
		}
	})
}

// A database that cannot do what others can says why, for every ability that it has not got.
func TestAbilities(t *testing.T) {
	for _, url := range []string{"postgres://h/d", "sqlite:x.db"} {
		m := MigrationsOf(url)
		_, roles := m.(RoleMigrations)
		_, indexes := m.(IndexMigrations)
		_, export := m.(ExportMigrations)
		_, zones := m.(ZoneMigrations)
		for what, can := range map[Ability]bool{Roles: roles, Indexes: indexes, Export: export, Zones: zones} {
			if why := m.Lacks(what); (why == "") != can {
				t.Errorf("%s: %s: can %t, and says %q", url, what, can, why)
			}
		}
	}
}
