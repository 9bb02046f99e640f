package app

import (
	"path/filepath"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
)

// A relay examines with one Examination every minute. Each time it judges new facts.
func TestEachExaminationReadsFacts(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "outbox.db")
	if err := MigrationsOf(url).Up(t.Context(), "core"); err != nil {
		t.Fatal(err)
	}
	db, err := OpenDatabase(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	kinds, err := Kinds(Sinks())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(kinds, []string{"OUTBOX_DATABASE_URL=" + url, "OUTBOX_TABLE=outbox_events"}, config.Global(),
		config.Mapping())
	if err != nil {
		t.Fatal(err)
	}
	x := examination(cfg, db)
	if r := x.Examine(t.Context(), condition.Selection{Only: []string{"OBX-030"}}); r.Worst != condition.Warning {
		t.Fatalf("without an event: %+v", r)
	}
	writing, err := db.Writing(t.Context(), outbox.WriterConfig{Table: "outbox_events"})
	if err != nil {
		t.Fatal(err)
	}
	defer writing.Close()
	event, err := writing.Prepare(t.Context(), outbox.Event{Topic: "a", Source: "test", Payload: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writing.Commit(t.Context(), []outbox.Event{event}, nil); err != nil {
		t.Fatal(err)
	}
	if r := x.Examine(t.Context(), condition.Selection{Only: []string{"OBX-030"}}); r.Worst != condition.Critical {
		t.Errorf("with an event that waits: %+v", r)
	}
}
