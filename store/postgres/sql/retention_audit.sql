-- retention: records a purge by hand. $1 who, $2 rows, $3 how they were chosen, $4 what became of them.
INSERT INTO outbox_audit (actor, action, letters, filter, detail) VALUES ($1, 'purge', $2, $3, $4)
