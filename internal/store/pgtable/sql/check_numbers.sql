-- check: whether positions still rise. $1 how many events are compared with each other; $2 whether delivered rows count
-- too, where reading all of them is quick. Returns the last position that the sequence has drawn, NULL if this role may
-- not read it; the highest position; a position of two events that must stay in order; the time after which events were
-- written that the sequence has placed too early, as a literal; whether there are any; whether transaction numbers of a
-- log are those of another server. Locks nothing. Indexes: that of undelivered rows, or a log's of positions and of
-- transactions.
WITH drawn AS MATERIALIZED (
    SELECT {{if .Readable}}(SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END FROM {{.Sequence}} s){{else}}NULL::bigint{{end}} AS last
), top AS MATERIALIZED (
    SELECT e.{{.Position}} AS position FROM {{.Table}} e WHERE {{template "ordered_rows" .}} ORDER BY e.{{.Position}} DESC LIMIT 1
), twice AS MATERIALIZED (
    SELECT max(d.position) AS position
      FROM (SELECT h.position
              FROM (SELECT e.{{.Position}} AS position, {{if .Transaction}}0::bigint{{else}}{{template "order_key" .}}{{end}} AS key,
                           {{if .KeylessScope}}e.{{.KeylessScope}}::text{{else}}NULL::text{{end}} AS scope
                      FROM {{.Table}} e
                     WHERE {{template "ordered_rows" .}}
                     ORDER BY e.{{.Position}}{{if .Transaction}} DESC{{end}}
                     LIMIT $1) h
             WHERE h.key IS NOT NULL OR h.scope IS NOT NULL
             GROUP BY h.position, h.key, h.scope
            HAVING count(*) > 1) d
), known AS MATERIALIZED (
    SELECT d.last, t.position AS top, w.position AS twice,
           CASE WHEN d.last < t.position OR w.position IS NOT NULL   -- times are read only then: one may be none
                THEN (SELECT min({{template "written_at" .}}) FROM {{.Table}} e
                       WHERE {{template "ordered_rows" .}} AND e.{{.Position}} = CASE WHEN d.last < t.position THEN t.position ELSE w.position END) END AS since,
           {{if .Transaction}}greatest((SELECT max(p.position) FROM outbox_log_positions p), (SELECT max(s.position) FROM outbox_subscriptions s), CASE WHEN $2::boolean THEN NULL::bigint END){{else -}}
           CASE WHEN $2::boolean AND pg_relation_size('{{.Table}}') BETWEEN 1 AND 1 << 26 THEN (SELECT max(e.{{.Position}}) FROM {{.Table}} e) END{{end}} AS read
      FROM drawn d CROSS JOIN twice w LEFT JOIN top t ON true
)
SELECT k.last, greatest(k.top, k.read), k.twice, quote_literal(k.since),
       CASE WHEN k.since IS NOT NULL
            THEN EXISTS (SELECT FROM {{.Table}} e WHERE {{template "ordered_rows" .}} AND {{template "written_at" .}} > k.since) ELSE false END,
       {{if .Transaction -}}
       EXISTS (SELECT FROM {{.Table}} e WHERE e.{{.Transaction}} >= pg_snapshot_xmax(pg_current_snapshot()))
       OR EXISTS (SELECT FROM outbox_log_positions p WHERE pg_snapshot_xmax(p.snapshot) > pg_snapshot_xmax(pg_current_snapshot()))
       OR EXISTS (SELECT FROM outbox_subscriptions s WHERE pg_snapshot_xmax(s.snapshot) > pg_snapshot_xmax(pg_current_snapshot()))
       {{- else}}false{{end}}
  FROM known k

{{define "ordered_rows"}}{{if .Transaction}}true{{else}}e.{{template "undelivered" .}}{{end}}{{end}}
