-- claim: the oldest undelivered rows of some lanes. $1 lanes, $2 limit.
-- Locks nothing, writes nothing: who may read a lane is settled by the lease.
-- Index: the partial one on the position of undelivered rows, in order, so that LIMIT stops it; the blocked keys come from the
-- partial index of waiting rows, which is nearly always empty.
SELECT e.{{.ID}},
       e.{{.Position}}::bigint,
       {{template "lane" .}},
       {{template "order_key" .}},
       {{if .Sequence}}coalesce(e.{{.Sequence}}, e.{{.Position}})::bigint{{else}}e.{{.Position}}::bigint{{end}},
       e.{{.Attempts}}::int,
       {{if .Generation}}e.{{.Generation}}::int{{else}}0{{end}},
       {{if .WrittenAt}}e.{{.WrittenAt}}::timestamptz{{else}}NULL::timestamptz{{end}},
       {{if .OccurredAt}}e.{{.OccurredAt}}::timestamptz{{else}}NULL::timestamptz{{end}},
       e.{{.Topic}}::text,
       {{if .AggregateType}}e.{{.AggregateType}}::text{{else}}NULL::text{{end}},
       {{if .Key}}e.{{.Key}}::text{{else}}NULL::text{{end}},
       {{if .Tenant}}e.{{.Tenant}}::text{{else}}NULL::text{{end}},
       {{if .Source}}e.{{.Source}}::text{{else}}NULL::text{{end}},
       {{if .SchemaID}}e.{{.SchemaID}}::text{{else}}NULL::text{{end}},
       {{if .SchemaVersion}}e.{{.SchemaVersion}}::int{{else}}1{{end}},
       {{if .Destinations}}e.{{.Destinations}}::text{{else}}NULL::text{{end}},
       {{if .DeliveredTo}}e.{{.DeliveredTo}}::text{{else}}NULL::text{{end}},
       {{if .Metadata}}e.{{.Metadata}}::text{{else}}NULL::text{{end}},
       e.{{.Payload}}::text
  FROM {{.Table}} e
 WHERE e.{{template "undelivered" .}}
   AND {{template "lane" .}} = ANY ($1::smallint[])
   AND (e.{{.NextRetryAt}} IS NULL OR e.{{.NextRetryAt}} <= now())
   {{- if .Key}}
   AND NOT EXISTS (
           SELECT FROM {{.Table}} b
            WHERE b.{{.NextRetryAt}} > now()
              AND b.{{template "undelivered" .}}
              {{- if .OrderKey}}
              AND b.{{.OrderKey}} = e.{{.OrderKey}}
              {{- else}}
              AND b.{{.Key}} = e.{{.Key}}
              {{- range .KeyScope}}
              AND b.{{.}} IS NOT DISTINCT FROM e.{{.}}
              {{- end}}
              {{- end}}
              AND b.{{.Position}} < e.{{.Position}})
   {{- end}}
 ORDER BY e.{{.Position}}
 LIMIT $2
