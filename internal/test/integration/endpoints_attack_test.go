package integration

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Somebody with the login of an operator, and without the key, reads nothing of the relay's by
// writing rows: no variable, no file, and no header of an endpoint whose URL, tenant or name he
// changes.
func TestEndpointsTellAnOperatorNothing(t *testing.T) {
	tier.Full(t)
	url := migrated(t)
	noError(t, pgtest.ApplyRoles(t.Context(), url))
	spy, acme := newHook(t), newHook(t)
	file := filepath.Join(t.TempDir(), "secret")
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("f", 32)))
	noError(t, os.WriteFile(file, []byte(secret), 0o600))
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	t.Setenv("OUTBOX_ENDPOINT_KEY", key)
	t.Setenv("TEST_DATABASE_URL", "postgres://relay:hunter2@db/app")
	t.Setenv("TEST_HEADER", "Bearer HDRSECRET")
	c := &command{t: t, environ: []string{"OUTBOX_DATABASE_URL=" + url, "OUTBOX_TABLE=outbox_events",
		"OUTBOX_SINK=webhook:table?allow=private,http&schedule=50ms"}}
	out := c.run(0, "Basic FROMSTDIN\n", "endpoints", "add", "acme", "--url", acme.URL+"/hook", "--tenant", "t1",
		"--header", "Authorization=env:TEST_HEADER", "--header", "X-Given=-", "--header", "X-Plain=visible")
	if !strings.Contains(out, "the value of header X-Plain") || strings.Contains(out, "header X-Given") {
		t.Errorf("the warning of what others see is\n%s", out)
	}
	c.start("relay")

	admin, err := pgx.Connect(t.Context(), url)
	noError(t, err)
	defer func() { _ = admin.Close(context.WithoutCancel(t.Context())) }()
	do := func(as *pgx.Conn, sql string, args ...any) {
		t.Helper()
		if _, err := as.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	do(admin, `DROP ROLE IF EXISTS l_spy`)
	do(admin, `CREATE ROLE l_spy LOGIN IN ROLE outbox_operator`)
	defer func() { _, _ = admin.Exec(context.WithoutCancel(t.Context()), `DROP ROLE IF EXISTS l_spy`) }()
	config, err := pgx.ParseConfig(url)
	noError(t, err)
	config.User = "l_spy"
	operator, err := pgx.ConnectConfig(t.Context(), config)
	noError(t, err)
	defer func() { _ = operator.Close(context.WithoutCancel(t.Context())) }()
	write := func(topic, tenant, to string) {
		t.Helper()
		do(operator, `INSERT INTO outbox_events (event_topic, tenant_id, occurred_at, source_bc, payload, destination_topics)
			VALUES ($1, $2, now(), 's', '{"n": 1}', jsonb_build_array($3::text))`, topic, tenant, to)
	}
	waits := func(topic string) {
		t.Helper()
		c.until(func() bool {
			var waits bool
			err := admin.QueryRow(t.Context(), `SELECT status <> 'SENT' AND (status = 'DEAD' OR next_retry_at > now())
				FROM outbox_events WHERE event_topic = $1`, topic).Scan(&waits)
			return err == nil && waits
		})
	}
	write("good", "t1", "acme")
	c.until(func() bool { return len(acme.requests()) == 1 })
	for name, want := range map[string]string{"Authorization": "Bearer HDRSECRET", "X-Given": "Basic FROMSTDIN"} {
		if got := acme.requests()[0].header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}

	const insert = `INSERT INTO outbox_endpoints (name, url, secrets, headers, revision) VALUES ($1, $2, $3, $4, $5)`
	do(operator, insert, "spy", spy.URL, `[{"value":"file:`+file+`"}]`,
		`{"X-Db":"env:TEST_DATABASE_URL","X-Key":"env:OUTBOX_ENDPOINT_KEY","X-File":"file:`+file+`"}`, 7)
	write("references", "t1", "spy")
	waits("references")
	do(operator, `INSERT INTO outbox_endpoints (name, url, secrets, headers, revision)
		SELECT 'copy', $1, secrets, headers, 8 FROM outbox_endpoints WHERE name = 'acme'`, spy.URL)
	write("copied", "t1", "copy")
	waits("copied")
	do(operator, `UPDATE outbox_endpoints SET url = $1, tenant_id = NULL, revision = 9 WHERE name = 'acme'`,
		spy.URL+"/stolen")
	c.until(func() bool { return strings.Contains(c.log.String(), `endpoint \"acme\"`) })
	write("moved", "t2", "acme")
	waits("moved")
	do(operator, `UPDATE outbox_endpoints SET url = $1, revision = 10 WHERE name = 'acme'`, acme.URL+"/hook")
	write("of another tenant", "t2", "acme")
	waits("of another tenant")
	if all := spy.requests(); len(all) > 0 {
		t.Errorf("%d requests went to the spy, the first with %v", len(all), all[0].header)
	}
	for _, want := range []string{"only a file of endpoints may have", "outbox endpoints rotate"} {
		if !strings.Contains(c.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &c.log)
		}
	}
	for _, secret := range []string{"hunter2", "HDRSECRET", "FROMSTDIN", key} {
		if strings.Contains(c.log.String(), secret) || strings.Contains(out, secret) {
			t.Errorf("%s was shown", secret)
		}
	}
}
