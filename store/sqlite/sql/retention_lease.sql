-- retention: takes a table's maintenance, or keeps it. No row: somebody else has it, or has just had
-- it. In a write transaction, in which now is read. Index: the primary key.
-- No lease reaches Farthest. One beyond it, and a run that has yet to begin, were written before the
-- clock was set back: they would keep everybody out until the old time comes again.
INSERT INTO outbox_maintenance AS m (table_name, owner, expires_at, ran_at) VALUES ({{arg .Name}}, {{arg .Owner}}, {{arg .Ends}}, {{arg .Now}})
ON CONFLICT (table_name) DO UPDATE
   SET owner      = excluded.owner,
       expires_at = excluded.expires_at,
       ran_at     = CASE WHEN m.owner = excluded.owner THEN m.ran_at ELSE excluded.ran_at END
 WHERE m.owner = excluded.owner
    OR (m.owner IS NULL OR m.expires_at <= excluded.ran_at OR m.expires_at > {{arg .Farthest}}) AND (m.ran_at IS NULL OR m.ran_at <= {{arg .LeastAt}} OR m.ran_at > excluded.ran_at)
RETURNING CASE WHEN swept_at <= {{arg .Now}} THEN CAST((julianday({{arg .Now}}) - julianday(swept_at)) * 86400000000 AS INTEGER)
               ELSE 9223372036854775 END
