-- lanes: who holds what, and until when. $1 table. expires in seconds from now, by the database's clock; below 0 the
-- lease has lapsed. Locks nothing.
-- Index: the primary keys.
SELECT l.lane, l.owner, r.name, l.epoch, extract(epoch FROM greatest(l.expires_at, r.expires_at) - clock_timestamp())::float8 AS expires, l.crashes, l.trial_size, l.trial_event
  FROM outbox_lanes l
  LEFT JOIN outbox_relays r ON r.table_name = l.table_name AND r.owner = l.owner
 WHERE l.table_name = $1
 ORDER BY l.lane
