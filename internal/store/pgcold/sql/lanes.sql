-- lanes: the owner and the lease of each lane, and the table's reader: one row without a lane if there are none. Locks
-- nothing. Index: the primary keys.
SELECT l.lane, l.owner, r.name, coalesce(l.epoch, 0), greatest(l.expires_at, r.expires_at), clock_timestamp(), coalesce(l.crashes, 0), coalesce(l.trial_size, 0), l.trial_event,
       t.reader
  FROM (SELECT (SELECT reader FROM outbox_readers WHERE table_name = {{arg .Leased}}) AS reader) t
  LEFT JOIN outbox_lanes l ON l.table_name = {{arg .Leased}}
  LEFT JOIN outbox_relays r ON r.table_name = l.table_name AND r.owner = l.owner
 ORDER BY l.lane
