package tables

import (
	"time"
)

// Backlog is how far behind a table's relay is.
type Backlog struct {
	Count  int           // undelivered rows, those waiting for a retry included; counting stops at the limit asked for
	Oldest time.Duration // age of the oldest one by the database's clock; 0 if there is none or the table keeps no time
}
