package deadletter

import "context"

// Collect writes the letters of a table's dead events that have none, so that they can be listed,
// replayed and discarded. They are letters of rows that somebody set dead by plain SQL, or that
// were dead before a relay served their table. It changes no row of the table. When ctx ends it
// returns how many it wrote so far. An event whose letter has been purged gets one again.
func Collect(ctx context.Context, store Store, table string, by Operator) (int, error) {
	return pages(ctx, "collect", func(ctx context.Context) (int, error) {
		return store.CollectPage(ctx, table, by, clearLetters)
	})
}
