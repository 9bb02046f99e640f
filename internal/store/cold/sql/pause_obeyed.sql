-- pause: which pauses each process that is alive obeys. One that is stopping, and still holds lanes, says nothing.
-- Locks nothing. Reads all of outbox_relays, a few rows, and of outbox_lanes, 64 for each table and group.
SELECT r.table_name, r.name, r.paused FROM outbox_relays r WHERE r.expires_at > {{template "now" .}}
UNION
SELECT l.table_name, 'a process that is stopping', NULL
  FROM outbox_lanes l
 WHERE l.owner IS NOT NULL AND l.expires_at > {{template "now" .}}
   AND NOT EXISTS (SELECT 1 FROM outbox_relays r WHERE r.table_name = l.table_name AND r.owner = l.owner)
