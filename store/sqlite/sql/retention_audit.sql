-- retention: records a purge by hand. ?1 id, ?2 now, ?3 who, ?4 rows, ?5 how they were chosen, ?6 what became of them.
INSERT INTO outbox_audit (id, at, actor, action, letters, filter, detail) VALUES (?1, ?2, ?3, 'purge', ?4, ?5, ?6)
