-- claim: the positions of some lanes of a log, as relays have left them, and the era. $1 table, $2 lanes. A lane that
-- no relay has served has none. No rows where no era has begun. Locks nothing. Index: the primary keys.
SELECT r.era::text, l.lane, p.id, p.position, p.snapshot::text, p.late_position, p.late_snapshot::text
  FROM outbox_log_era r
 CROSS JOIN unnest($2::smallint[]) AS l (lane)
  LEFT JOIN LATERAL ({{template "log_place"}}) p ON true
 WHERE r.one
