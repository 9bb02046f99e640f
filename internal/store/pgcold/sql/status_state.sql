-- status: readers, relays, lanes by owner, pauses, pending deliveries, dead letters, groups and subscriptions,
-- each from the tables that exist and that this role may read. One JSON object a row. Locks nothing.
-- Index: the primary keys; outbox_deliveries_lanes and outbox_deliveries_dead; idx_job_dlq_pending_source.
SELECT 'now', json_build_object('now', clock_timestamp())
{{if .Sees.Readers -}}
UNION ALL
SELECT 'reader', json_build_object('table', r.table_name, 'reader', r.reader) FROM outbox_readers r
{{end -}}
{{if .Sees.Relays -}}
UNION ALL
SELECT 'relay', json_build_object('table', r.table_name, 'owner', r.owner, 'name', r.name, 'joinedAt', r.joined_at,
                                  'expiresAt', r.expires_at, 'health', r.health, 'healthSince', r.health_since,
                                  'serves', r.serves, 'seenAt', r.seen_at)
  FROM outbox_relays r
{{end -}}
{{if .Sees.Lanes -}}
UNION ALL
SELECT 'lanes', json_build_object('table', l.table_name, 'owner', l.owner, 'lanes', count(*), 'held', l.held,
                                  'expiresAt', max(l.until), 'suspect', count(*) FILTER (WHERE l.suspect))
  FROM (SELECT l.table_name, l.owner, l.crashes > 1 OR l.trial_size > 0 AS suspect, e.until,
               coalesce(e.until > clock_timestamp(), false) AS held
          FROM outbox_lanes l
          {{- if .Sees.Relays}}
          LEFT JOIN outbox_relays r ON r.table_name = l.table_name AND r.owner = l.owner
          CROSS JOIN LATERAL (SELECT greatest(l.expires_at, r.expires_at)) AS e (until)
          {{- else}}
          CROSS JOIN LATERAL (SELECT l.expires_at) AS e (until)
          {{- end}}) AS l
 GROUP BY l.table_name, l.owner, l.held
{{end -}}
{{if .Sees.Pauses -}}
UNION ALL
SELECT 'pause', json_build_object('table', p.table_name, 'topic', p.topic, 'destination', p.destination,
                                  'reason', p.reason, 'actor', p.actor, 'at', p.paused_at)
  FROM outbox_pauses p
{{end -}}
{{if .Sees.Deliveries -}}
UNION ALL
SELECT 'delivery', json_build_object('table', d.outbox_table, 'sink', d.sink, 'dead', sum(d.dead))
  FROM (SELECT DISTINCT e.outbox_table, e.sink, 0 AS dead FROM outbox_deliveries e WHERE e.status = 'pending'
        UNION ALL
        SELECT e.outbox_table, e.sink, count(*) FROM outbox_deliveries e
         WHERE e.status = 'dead'
           {{- if .Sees.DeadLetters}}
           AND EXISTS (SELECT FROM job_dlq l
                        WHERE l.original_job_id = e.event_id AND l.position = e.position AND l.source = 'event'
                          AND l.outbox_table = 'outbox_deliveries'
                          AND l.replayed_at IS NULL AND l.discarded_at IS NULL){{end}}
         GROUP BY 1, 2) AS d
 GROUP BY 1, d.outbox_table, d.sink
{{end -}}
{{if .Sees.DeadLetters -}}
UNION ALL
SELECT 'letters', json_build_object('source', l.source, 'table', coalesce(l.outbox_table, ''), 'letters', count(*))
  FROM (SELECT l.source, l.outbox_table FROM job_dlq l
         WHERE l.replayed_at IS NULL AND l.discarded_at IS NULL
         LIMIT {{arg .Count}}) AS l
 GROUP BY 1, l.source, l.outbox_table
{{end -}}
{{if .Sees.Subscriptions -}}
UNION ALL
SELECT 'subscription', json_build_object('name', s.name, 'tenant', s.tenant, 'askedAt', s.seen_at,
                                         'keepUntil', s.seen_at + s.keep, 'pausedAt', s.paused_at)
  FROM outbox_subscriptions s
{{end}}
{{if .Sees.Positions -}}
UNION ALL
SELECT 'position', json_build_object('table', p.table_name)
  FROM (SELECT DISTINCT table_name FROM outbox_log_positions) AS p
{{end -}}
{{range $i, $s := .Sets -}}
UNION ALL
SELECT 'set', json_build_object('name', {{arg $s.Set}}::text, 'version', v.version, 'dirty', v.dirty)
  FROM {{$s.Table}} v
{{end}}
