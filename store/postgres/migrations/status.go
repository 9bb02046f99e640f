package migrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql/version.sql
var versionSQL string

// undefinedTable is the SQLSTATE of a set that was never applied.
const undefinedTable = "42P01"

// SetStatus says where a database stands with one set.
type SetStatus struct {
	Set     string   `json:"set"`
	Current uint     `json:"current"` // 0: nothing applied
	Latest  uint     `json:"latest"`  // newest embedded version; below Current when the database is newer than this build
	Dirty   bool     `json:"dirty"`   // a process died while migrating; Up repairs it
	Pending []string `json:"pending"` // the files Up would run, oldest first; the marked one is not listed while Dirty
}

// Status reads the state of every set, in the order of Sets. It changes nothing and takes no lock, so while
// another process migrates it may see Dirty.
func Status(ctx context.Context, databaseURL string) ([]SetStatus, error) {
	conn, err := connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	var all []SetStatus
	for _, set := range Sets {
		s, err := status(ctx, conn, set)
		if err != nil {
			return nil, fmt.Errorf("read migration status: %w", err)
		}
		all = append(all, s)
	}
	return all, nil
}

func status(ctx context.Context, conn *pgx.Conn, set string) (SetStatus, error) {
	s := SetStatus{Set: set, Latest: Required(set), Pending: []string{}} // an empty list in JSON, not null

	var version int64
	row := conn.QueryRow(ctx, strings.ReplaceAll(versionSQL, "{table}", versionTable(set)))
	err := row.Scan(&version, &s.Dirty)
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case errors.As(err, &server) && server.Code == undefinedTable:
	case err != nil:
		return s, fmt.Errorf("read version table %s: %w", versionTable(set), err)
	}
	if version > 0 { // golang-migrate writes -1 for "none" while it takes the first one away
		s.Current = uint(version)
	}
	for _, m := range list(set) {
		if m.version > s.Current {
			s.Pending = append(s.Pending, m.name)
		}
	}
	return s, nil
}
