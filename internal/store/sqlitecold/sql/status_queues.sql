-- status: of each queue the undelivered events among its oldest rows, how many of them wait for a retry or behind
-- one, and the oldest. A queue is an outbox table, or the pending deliveries of one sink. Of a table also the rows
-- ever inserted, and its oldest events that wait for a retry. One JSON object a row. Locks nothing.
-- Index: as in lanes_backlog.
SELECT 'now', json_object('now', {{arg .Now}})
{{range $i, $t := .Tables -}}
UNION ALL
SELECT 'queue', json_object(
           'table', {{arg $t.Leased}}, 'waiting', coalesce(sum(waiting), 0), 'retrying', coalesce(sum(retrying), 0),
           'behind', coalesce(sum(behind), 0), 'keys', coalesce(sum(keys), 0),
           'position', min(position), 'at', written, 'id', iif(typeof(id) = 'blob', hex(id), id)
           {{- if $.Sees.Sequence}},
           'inserted', (SELECT max(seq) FROM sqlite_sequence WHERE name = {{$t.TableName}}){{end}})
  FROM ({{template "lanes_backlog.sql" $t}})
UNION ALL
SELECT 'failing', json_object(
           'table', {{arg $t.Leased}}, 'id', id, 'key', key, 'topic', topic,
           'attempts', attempts, 'error', error, 'nextAt', next_at, 'at', written)
  FROM (SELECT iif(typeof(e.{{$t.ID}}) = 'blob', hex(e.{{$t.ID}}), e.{{$t.ID}}) AS id,
               {{if $t.Key}}CAST(e.{{$t.Key}} AS TEXT){{else}}NULL{{end}} AS key, CAST(e.{{$t.Topic}} AS TEXT) AS topic,
               e.{{$t.Attempts}} AS attempts,
               {{if $t.LastError}}CAST(e.{{$t.LastError}} AS TEXT){{else}}NULL{{end}} AS error,
               CAST(e.{{$t.NextRetryAt}} AS TEXT) AS next_at,
               {{if $t.WrittenAt}}CAST(e.{{$t.WrittenAt}} AS TEXT){{else}}NULL{{end}} AS written
          FROM {{$t.Table}} AS e
         WHERE e.{{$t.NextRetryAt}} IS NOT NULL AND {{template "retry_at" $t}} > {{arg $.Now}}
           AND +e.{{template "undelivered" $t}}
         ORDER BY e.{{$t.Position}}
         LIMIT 20)
{{end}}
