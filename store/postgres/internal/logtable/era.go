package logtable

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// anotherEra is the error of a claim from places of an era that is over.
type anotherEra struct{ era string } // "": none has begun

func (anotherEra) Error() string { return "the server has forgotten its last commits" }

// load finds out how far lanes have come that are new to this relay, or of which it knows only from
// an earlier era.
func (l *Store) load(ctx context.Context, lanes []outbox.Lane) error {
	for {
		l.mu.Lock()
		var unknown []int16
		for _, lane := range lanes {
			if !l.knows(lane) {
				unknown = append(unknown, lane.Number)
			}
		}
		l.mu.Unlock()
		if len(unknown) == 0 {
			return nil
		}
		found, err := l.places(ctx, unknown)
		if err == nil && len(found) == 0 {
			_, err = l.Pool.Exec(ctx, l.sql.era)
		}
		if err != nil {
			return fmt.Errorf("read positions of %s: %w", l.Layout.Table, err)
		}
		l.mu.Lock()
		for _, lane := range lanes {
			if place := found[lane.Number]; place != nil {
				l.era = place.era
				l.lanes[lane.Number] = &held{epoch: lane.Epoch, place: place}
			}
		}
		l.mu.Unlock()
	}
}

// knows tells whether it is known how far a lane has come. The caller holds mu.
func (l *Store) knows(lane outbox.Lane) bool {
	known := l.lanes[lane.Number]
	return known != nil && known.epoch == lane.Epoch && known.place.era == l.era
}

// places reads how far some lanes have come; nothing where no era has begun.
func (l *Store) places(ctx context.Context, lanes []int16) (map[int16]*progress, error) {
	rows, err := l.Pool.Query(ctx, l.sql.load, l.LeaseName(), lanes)
	if err != nil {
		return nil, err
	}
	places := map[int64]*progress{} // by their number, 0: none
	found := map[int16]*progress{}
	var era string
	var lane int16
	var id, position, latePosition *int64
	var seen, lateSeen *string
	_, err = pgx.ForEachRow(rows, []any{&era, &lane, &id, &position, &seen, &latePosition, &lateSeen}, func() (err error) {
		if id == nil {
			id = new(int64)
		}
		if places[*id] == nil {
			p := origin()
			if position != nil {
				p.position = *position
				if p.snapshot, err = parseSnapshot(*seen); err != nil {
					return err
				}
			}
			if latePosition != nil {
				p.late = &latePass{position: *latePosition}
				if p.late.snapshot, err = parseSnapshot(*lateSeen); err != nil {
					return err
				}
			}
			p.era = era
			places[*id] = p
		}
		found[lane] = places[*id]
		return nil
	})
	return found, err
}
