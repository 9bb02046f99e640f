package migrate

import (
	"os"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestGoose(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	db, conn := open(t, url)
	provider, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS(export(t, pgmigrations.Goose)))
	if err != nil {
		t.Fatal(err)
	}
	results, err := provider.Up(t.Context())
	if err != nil || len(results) < 20 {
		t.Fatalf("goose has applied %d files: %v", len(results), err)
	}
	applied(t, url, "goose")
	if _, err := provider.DownTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if left := catalog(t, conn); len(left) > 0 {
		t.Errorf("after down there is %v", left)
	}
}
