-- status: of each queue the undelivered events among its oldest rows, how many of them wait for a retry or behind
-- one, and the oldest. A queue is an outbox table, the pending deliveries of one sink, or a log for one reader. Of
-- a table also the rows ever inserted, by the server's statistics, and its oldest events that wait for a retry; of
-- a subscription the events that it has still to fetch or to acknowledge. One JSON object a row. Locks nothing.
-- Index: as in lanes_backlog and log_lanes.
SELECT 'now', json_build_object('now', now())
{{range $i, $t := .Tables -}}
UNION ALL
SELECT 'queue', json_build_object(
           'table', {{arg $t.Leased}}::text, 'waiting', coalesce(sum(b.waiting), 0),
           'retrying', coalesce(sum(b.retrying), 0), 'behind', coalesce(sum(b.behind), 0), 'keys', coalesce(sum(b.keys), 0),
           'at', min(b.written), 'id', (array_agg(b.id ORDER BY b.position))[1],
           'inserted', pg_stat_get_tuples_inserted(to_regclass({{arg $t.Table}}::text)))
  FROM ({{template "lanes_backlog.sql" $t}}) AS b (lane, waiting, position, written, id, now, retrying, behind, keys)
UNION ALL
SELECT 'failing', json_build_object(
           'table', {{arg $t.Leased}}::text, 'id', f.id, 'key', f.key, 'topic', f.topic,
           'attempts', f.attempts, 'error', f.error, 'nextAt', f.next_at, 'at', f.written)
  FROM (SELECT e.{{$t.ID}}::text AS id, {{if $t.Key}}e.{{$t.Key}}::text{{else}}NULL{{end}} AS key,
               e.{{$t.Topic}}::text AS topic,
               e.{{$t.Attempts}} AS attempts, {{if $t.LastError}}e.{{$t.LastError}}::text{{else}}NULL{{end}} AS error,
               {{template "shown_time" $t.NextRetryAt}} AS next_at, {{template "shown_written_at" $t}} AS written
          FROM {{$t.Table}} e
         WHERE e.{{$t.NextRetryAt}} > now() AND e.{{template "undelivered" $t}}
         ORDER BY e.{{$t.Position}}
         LIMIT 20) AS f
{{end -}}
{{range $i, $l := .Logs -}}
UNION ALL
SELECT 'queue', json_build_object(
           'table', a.name, 'waiting', b.waiting, 'retrying', 0, 'behind', 0, 'keys', 0, 'at', b.written,
           'inserted', (SELECT sum(pg_stat_get_tuples_inserted(r.relid))
                          FROM pg_partition_tree(to_regclass({{arg $l.Table}}::text)) r))
  FROM unnest({{arg $l.Readers}}::text[]) AS a (name)
 CROSS JOIN LATERAL (SELECT array_agg(position ORDER BY lane) AS positions, min(position) AS lowest
                       FROM (SELECT l.lane, coalesce((SELECT p.position FROM outbox_log_positions p
                                                       WHERE p.table_name = a.name
                                                         AND p.lanes & (1::bigint << l.lane) <> 0
                                                       ORDER BY p.position DESC, p.id DESC LIMIT 1), 0) AS position
                               FROM generate_series(0, {{arg $l.Lanes}}::int - 1) AS l (lane)) AS known) AS place
 CROSS JOIN LATERAL (SELECT count(*) AS waiting, min(u.written) AS written
                       FROM (SELECT {{template "shown_written_at" $l}} AS written
                               FROM {{$l.Table}} e
                              WHERE e.{{$l.Position}} > place.lowest
                                AND e.{{$l.Position}} > place.positions[{{template "lane" $l}} + 1]
                              ORDER BY e.{{$l.Position}} LIMIT {{arg $l.Count}}) AS u) AS b
{{end -}}
{{if .Subscriptions -}}
UNION ALL
SELECT 'subscribed', json_build_object('name', s.name, 'waiting', v.waiting + n.waiting,
                                       'at', least(v.written, n.written))
  FROM outbox_subscriptions s
 CROSS JOIN LATERAL (SELECT count(*) AS waiting, min(u.created_at) AS written
                       FROM (SELECT l.created_at
                               FROM outbox_subscription_events v JOIN outbox_log l ON l.position = v.position
                              WHERE v.subscription = s.name LIMIT {{arg .Count}}) AS u) AS v
 CROSS JOIN LATERAL (SELECT count(*) AS waiting, min(u.created_at) AS written
                       FROM (SELECT l.created_at FROM outbox_log l
                              WHERE l.position > s.position AND (s.types IS NULL OR l.event_topic = ANY (s.types))
                                AND (s.tenant IS NULL OR l.tenant_id = s.tenant)
                              ORDER BY l.position LIMIT {{arg .Count}}) AS u) AS n
{{end}}
