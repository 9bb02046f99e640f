package sqlite

import (
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/store/busevent"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// NewEventBus returns the repository of table event_outbox. It speaks for an application, whose
// events it offers and sees and no others, or for all if app is zero: there is no row-level
// security. maxPayload is in bytes; 0 means outbox.DefaultMaxPayload.
//
// Its transactions are those of DB.Begin, or of a library on a handle of sqlite.Source. One that
// takes events is the file's only write transaction meanwhile, so publish them quickly. It stays
// usable after every error but those of its end.
func NewEventBus(app uuid.UUID, maxPayload int) eventbus.Bus[outbox.SQLTx] {
	return busevent.Bus[outbox.SQLTx]{DB: sqlitecold.DB{}, App: app, MaxPayload: maxPayload,
		Conn: func(tx outbox.SQLTx) (cold.Conn, error) {
			open, err := sqltx.Open(tx)
			return cold.SQL{SQLTx: open}, err
		}}
}
