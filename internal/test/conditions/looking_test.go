package conditions_test

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// asked is a statement in the server's log that asks something: no ping, and no beginning or end of
// a transaction.
var asked = regexp.MustCompile(`LOG:  (statement|execute [^:]+): ([^-bcr]|b[^e]|c[^o]|r[^o])`)

// An overview costs the database three statements, and each minute a further examination.
func TestOverviewTakesThreeStatements(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	p := newPatient(t)
	p.exec("ALTER DATABASE postgres SET log_statement = 'all'")
	c := p.settings()
	db, err := app.OpenDatabase(t.Context(), c.Database)
	must(t, err)
	defer db.Close()
	desk := admin.NewDesk(admin.DeskConfig{Config: c, Database: db, Logger: slog.New(slog.DiscardHandler),
		Examination: condition.Examination{Config: c, DB: db, Limits: condition.Usual,
			Migrations: func(ctx context.Context) ([]migration.SetStatus, error) {
				return app.MigrationsOf(c.Database).Status(ctx)
			}}})
	sampled := false // rates need two samples
	sample := func() (statements int) {
		before, err := p.server.Log()
		must(t, err)
		now := desk.Sample(t.Context())
		if now.Error != "" || len(now.Tables) != 2 || (now.Tables[0].WrittenPerSecond != nil) != sampled {
			t.Fatalf("the overview is %+v", now)
		}
		sampled = true
		after, err := p.server.Log()
		must(t, err)
		return len(asked.FindAllString(after[len(before):], -1))
	}
	if first, next := sample(), sample(); first < 20 || next != 3 {
		t.Fatalf("the log has %d statements of the first overview and %d of the second, want at least 20 and 3", first, next)
	}
}

// A database that has the core alone lacks tables that others have. Migrating it and looking on is
// no error in the server's log, which somebody is paged for.
func TestLookingIsNoErrorOfTheServer(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	p := newPatient(t)
	p.exec("CREATE DATABASE plain")
	url := p.server.URL("plain")
	must(t, migrate(t.Context(), url, "core"))
	p.set("OUTBOX_DATABASE_URL="+url, "OUTBOX_TABLE=outbox_events")
	report, err := app.Examine(t.Context(), p.settings(), p.limits, condition.Selection{}, p.canary)
	must(t, err)
	if report.Asked < 40 || len(report.Unseen) > 0 {
		t.Errorf("%d conditions were looked for, and these could not be: %v", report.Asked, report.Unseen)
	}
	said, err := p.server.Log()
	must(t, err)
	if found := regexp.MustCompile(`(?m)^.*ERROR:.*$`).FindAllString(said, -1); len(found) > 0 {
		t.Errorf("the server's log has %d errors:\n%s", len(found), strings.Join(found, "\n"))
	}
}
