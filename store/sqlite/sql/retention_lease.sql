-- retention: takes a table's maintenance, or keeps it. ?1 table, ?2 owner, ?3 when it ends, ?4 now, ?5 before when the
-- last run must have begun. No row: somebody else has it, or has just had it. In a write transaction, in which now is
-- read. Index: the primary key.
-- ?6 is a time that no lease reaches. One beyond it, and a run that has yet to begin, were written before the clock was
-- set back: they would keep everybody out until the old time comes again.
INSERT INTO outbox_maintenance AS m (table_name, owner, expires_at, ran_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (table_name) DO UPDATE
   SET owner      = ?2,
       expires_at = ?3,
       ran_at     = CASE WHEN m.owner = ?2 THEN m.ran_at ELSE ?4 END
 WHERE m.owner = ?2
    OR (m.owner IS NULL OR m.expires_at <= ?4 OR m.expires_at > ?6) AND (m.ran_at IS NULL OR m.ran_at <= ?5 OR m.ran_at > ?4)
RETURNING swept_at
