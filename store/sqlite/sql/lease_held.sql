-- lease: what the caller holds at ?3; its share. ?1 table, ?2 owner, ?6 number of lanes. One row without a lane if it
-- holds none. Locks nothing. Index: the primary keys.
WITH {{template "share"}}
SELECT l.lane, coalesce(l.epoch, 0), coalesce(l.crashes, 0), coalesce(l.trial_size, 0), l.trial_event, l.expires_at, share.lanes
  FROM share LEFT JOIN outbox_lanes AS l ON l.table_name = ?1 AND l.owner = ?2
 ORDER BY l.lane
