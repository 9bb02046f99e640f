-- claim: the positions of some lanes of a log, as relays have left them. $1 table, $2 lanes. A lane that no relay has
-- served has none. The furthest counts: what each row says is true for ever, whoever wrote it. Locks nothing. Index: the
-- primary key.
SELECT l.lane, p.id, p.position, p.snapshot::text, p.late_position, p.late_snapshot::text
  FROM unnest($2::smallint[]) AS l (lane)
 CROSS JOIN LATERAL ({{template "log_place"}}) p

{{define "log_place" -}}
    SELECT *
      FROM outbox_log_positions p
     WHERE p.table_name = $1 AND p.lanes & (1::bigint << l.lane) <> 0
     ORDER BY p.position DESC, p.id DESC
     LIMIT 1
{{- end}}
