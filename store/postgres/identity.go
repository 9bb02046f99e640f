package postgres

import (
	"context"
	"fmt"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// identify returns the name under which a table's lanes are leased, and that of the table whose
// events it has (of a part of outbox_deliveries it is another). It returns the hash that tells
// those from the events of all other tables and databases.
func identify(
	ctx context.Context, db pgtable.Querier, layout outbox.Layout,
) (name, of string, origin uint64, err error) {
	table := layout.Table
	if name, err = pgtable.Name(ctx, db, table); err != nil {
		return "", "", 0, err
	}
	of = name
	switch {
	case layout.Part != "":
		name, of = name+"/"+layout.PartValue, layout.Of
	case layout.Reader != "" && !layout.KeepsState():
		name += "/" + layout.Reader
	}
	sql, err := plain("origin")
	if err != nil {
		return "", "", 0, err
	}
	var hash int64
	err = db.QueryRow(ctx, sql, of).Scan(&hash)
	// A server that lets nobody see its identifier: the database's name has to do.
	if pgtable.Code(err) == noRight {
		if sql, err = plain("origin_by_name"); err == nil {
			err = db.QueryRow(ctx, sql, of).Scan(&hash)
		}
	}
	if err != nil {
		return "", "", 0, fmt.Errorf("identify %s: %w", table, err)
	}
	return name, of, uint64(hash), nil
}
