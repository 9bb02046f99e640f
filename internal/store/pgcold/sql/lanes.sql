-- lanes: who holds what, and until when. Locks nothing. Index: the primary keys.
SELECT l.lane, l.owner, r.name, l.epoch, greatest(l.expires_at, r.expires_at), clock_timestamp(), l.crashes, l.trial_size, l.trial_event
  FROM outbox_lanes l
  LEFT JOIN outbox_relays r ON r.table_name = l.table_name AND r.owner = l.owner
 WHERE l.table_name = {{arg .Leased}}
 ORDER BY l.lane
