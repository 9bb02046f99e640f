-- status: readers, relays, lanes by owner, pauses, pending deliveries and dead letters, each from the tables that
-- exist. One JSON object a row. Locks nothing.
-- Index: the primary keys; outbox_deliveries_lanes and outbox_deliveries_dead; idx_job_dlq_pending_source.
SELECT 'now', json_object('now', {{arg .Now}})
{{if .Sees.Readers -}}
UNION ALL
SELECT 'reader', json_object('table', r.table_name, 'reader', r.reader) FROM outbox_readers AS r
{{end -}}
{{if .Sees.Relays -}}
UNION ALL
SELECT 'relay', json_object('table', r.table_name, 'owner', r.owner, 'name', r.name, 'joinedAt', r.joined_at,
                            'expiresAt', r.expires_at, 'health', json(r.health), 'healthSince', r.health_since,
                            'serves', r.serves, 'seenAt', r.seen_at)
  FROM outbox_relays AS r
{{end -}}
{{if .Sees.Lanes -}}
UNION ALL
SELECT 'lanes', json_object('table', l.table_name, 'owner', l.owner, 'lanes', count(*),
                            'held', json(iif(l.expires_at > {{arg .Now}}, 'true', 'false')),
                            'expiresAt', max(l.expires_at),
                            'suspect', count(*) FILTER (WHERE l.crashes > 1 OR l.trial_size > 0))
  FROM outbox_lanes AS l
 GROUP BY l.table_name, l.owner, l.expires_at > {{arg .Now}}
{{end -}}
{{if .Sees.Pauses -}}
UNION ALL
SELECT 'pause', json_object('table', p.table_name, 'topic', p.topic, 'destination', p.destination,
                            'reason', p.reason, 'actor', p.actor, 'at', p.paused_at)
  FROM outbox_pauses AS p
{{end -}}
{{if .Sees.Deliveries -}}
UNION ALL
SELECT 'delivery', json_object('table', d.outbox_table, 'sink', d.sink, 'dead', sum(d.dead))
  FROM (SELECT DISTINCT e.outbox_table, e.sink, 0 AS dead FROM outbox_deliveries AS e WHERE e.status = 'pending'
        UNION ALL
        SELECT e.outbox_table, e.sink, count(*) FROM outbox_deliveries AS e
         WHERE e.status = 'dead'
           {{- if .Sees.DeadLetters}}
           AND EXISTS (SELECT 1 FROM job_dlq AS l
                        WHERE l.original_job_id = lower(e.event_id) AND l.position = e.position AND l.source = 'event'
                          AND l.outbox_table = 'outbox_deliveries'
                          AND l.replayed_at IS NULL AND l.discarded_at IS NULL){{end}}
         GROUP BY e.outbox_table, e.sink) AS d
 GROUP BY d.outbox_table, d.sink
{{end -}}
{{if .Sees.DeadLetters -}}
UNION ALL
SELECT 'letters', json_object('source', l.source, 'table', coalesce(l.outbox_table, ''), 'letters', count(*))
  FROM (SELECT l.source, l.outbox_table FROM job_dlq AS l
         WHERE l.replayed_at IS NULL AND l.discarded_at IS NULL
         LIMIT {{arg .Count}}) AS l
 GROUP BY l.source, l.outbox_table
{{end}}
{{range $i, $s := .Sets -}}
UNION ALL
SELECT 'set', json_object('name', {{arg $s.Set}}, 'version', v.version, 'dirty', json(iif(v.dirty, 'true', 'false')))
  FROM {{$s.Table}} AS v
{{end}}
