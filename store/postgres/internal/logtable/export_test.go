package logtable

// SQL are the statements of a store, for the test of their plans.
func (l *Store) SQL() map[string]string {
	return map[string]string{"claim": l.sql.claim, "load": l.sql.load, "settle": l.sql.settle, "note": l.sql.note,
		"dead": l.sql.dead, "compact": l.sql.compact, "backlog": l.sql.backlog}
}

// Era is the last one that was read.
func (l *Store) Era() string { return l.era }
