package migrate

import (
	"context"
	"testing"

	atlas "ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/postgres"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestAtlas(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	db, _ := open(t, url)
	dir, err := atlas.NewLocalDir(export(t, pgmigrations.Atlas))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := dir.Checksum() // as `atlas migrate hash` does
	if err != nil {
		t.Fatal(err)
	}
	if err := atlas.WriteSumFile(dir, sum); err != nil {
		t.Fatal(err)
	}
	driver, err := postgres.Open(db)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := atlas.NewExecutor(driver, dir, &revisions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := executor.ExecuteN(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	// Atlas' command, which is no library, keeps its record here.
	const record = "CREATE SCHEMA atlas_schema_revisions CREATE TABLE atlas_schema_revisions (version varchar PRIMARY " +
		"KEY, applied bigint NOT NULL)"
	if _, err := db.ExecContext(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	applied(t, url, "Atlas")
}

// revisions is Atlas' record of what it has applied, in memory.
type revisions struct{ all []*atlas.Revision }

func (r *revisions) Ident() *atlas.TableIdent {
	return &atlas.TableIdent{Name: "atlas_schema_revisions"}
}

func (r *revisions) ReadRevisions(context.Context) ([]*atlas.Revision, error) { return r.all, nil }

func (r *revisions) ReadRevision(_ context.Context, version string) (*atlas.Revision, error) {
	for _, one := range r.all {
		if one.Version == version {
			return one, nil
		}
	}
	return nil, atlas.ErrRevisionNotExist
}

func (r *revisions) WriteRevision(_ context.Context, revision *atlas.Revision) error {
	for i, one := range r.all {
		if one.Version == revision.Version {
			r.all[i] = revision
			return nil
		}
	}
	r.all = append(r.all, revision)
	return nil
}

func (r *revisions) DeleteRevision(context.Context, string) error { return nil }
