{{- /*
What every claim reads of a row, in the order of the constants in claim.go, and which undelivered rows are due: those
of the lanes $1 that wait for no retry, and whose key waits for none, nor those of the keys $3 and the ids $4, whose
outcome the caller could not record. The keys whose head waits come from the partial index of waiting rows, which is
nearly always empty, and are hashed once a claim, without regard to the position: what committed late in front of a
waiting row waits with it. A probe a row (NOT EXISTS) would be a scan a row on a mapped table without that index
(measured: 6.6 s for 1000 undelivered rows of 30,000).
Lanes are the bits of a number: a generic plan looks through an array element by element. The lane of a row with a key
is left to the caller, who has it in the hash of the key or of its sequence.
Unreadable leaves out every column whose type, size or content can make the row unreadable, and Bare the texts of the
topic, the key and the tenant too: then only a key from which no lane can be computed is unreadable.
*/ -}}

{{define "claim_columns" -}}
    e.{{.ID}},
    e.{{.Position}}::bigint,
    {{if and .KeylessScope (not .Part)}}NULL::smallint{{else if and .Key (not .Part)}}CASE WHEN e.{{.Key}} IS NULL THEN {{template "lane" .}} END
    {{- else}}{{template "lane" .}}{{end}},
    {{template "order_key" .}},
    {{if and .Sequence .Unreadable}}0::bigint{{else if .Sequence}}coalesce(e.{{.Sequence}}, 0)::bigint{{else}}e.{{.Position}}::bigint{{end}},
    {{if and .Attempts (not .Unreadable)}}coalesce(e.{{.Attempts}}, 0)::int{{else}}0{{end}},
    {{if .Generation}}coalesce(e.{{.Generation}}, 0)::int{{else}}0{{end}},
    {{if .Unreadable}}NULL::timestamptz{{else}}{{template "written_at" .}}{{end}},
    {{if and .OccurredAt (not .Unreadable)}}e.{{.OccurredAt}}::timestamptz{{else}}NULL::timestamptz{{end}},
    {{if .Bare}}NULL::text{{else}}e.{{.Topic}}::text{{end}},
    {{if and .AggregateType (not .Unreadable)}}e.{{.AggregateType}}::text{{else}}NULL::text{{end}},
    {{if and .Key (not .Bare)}}e.{{.Key}}::text{{else}}NULL::text{{end}},
    {{if .Bare}}NULL::text{{else}}{{template "tenant_name" .}}{{end}},
    {{if and .App (not .Unreadable)}}e.{{.App}}::uuid{{else}}NULL::uuid{{end}},
    {{if and .Source (not .Unreadable)}}e.{{.Source}}::text{{else}}NULL::text{{end}},
    {{if and .SchemaID (not .Unreadable)}}e.{{.SchemaID}}::text{{else}}NULL::text{{end}},
    {{if and .SchemaVersion (not .Unreadable)}}coalesce(e.{{.SchemaVersion}}, 1)::int{{else}}1{{end}},
    {{if and .Destinations (not .Unreadable)}}e.{{.Destinations}}::text{{else}}NULL::text{{end}},
    {{if and .DeliveredTo (not .Unreadable)}}e.{{.DeliveredTo}}::text{{else}}NULL::text{{end}},
    {{if and .Metadata (not .Unreadable)}}e.{{.Metadata}}::text{{else}}NULL::text{{end}},
    {{if .Unreadable}}'null'{{else}}coalesce(e.{{.Payload}}::text, 'null'){{end}},
    e.{{if .Transaction}}{{.Transaction}}{{else}}ctid{{end}}
{{- end}}

{{define "due" -}}
($1::bigint >> {{template "lane" .}}) & 1 = 1
   AND (e.{{.NextRetryAt}} IS NULL OR e.{{.NextRetryAt}} <= now())
   {{- if or .Key .KeylessScope}}
   AND (NOT {{template "ordered" .}} OR {{template "order_key" .}} NOT IN (
           SELECT {{template "order_key" .}}
             FROM {{.Table}} e
            WHERE e.{{.NextRetryAt}} > now()
              AND e.{{template "undelivered" .}}
              AND {{template "ordered" .}}
            UNION ALL
           SELECT unnest($3::bigint[])))
   {{- else}}
   AND $3::bigint[] IS NOT NULL -- a statement must name all its parameters
   {{- end}}
   AND e.{{.ID}} <> ALL ($4::uuid[])
   {{- if .Pausing}}{{template "unpaused" .}}{{end}}
{{- end}}

{{define "tenant_name"}}
    {{- if .Tenant}}e.{{.Tenant}}::text
    {{- else if .App}}(SELECT a.namespace::text FROM apps a WHERE a.id = e.{{.App}})
    {{- else}}NULL::text{{end}}
{{- end}}

{{- /* Not what is paused: no row without a key that is, and no key whose first row is. A paused row behind another of
its key is read and left out by the caller, with all behind it; so is one that paused does not see, for a character in
a name that JSON writes in several ways. All undelivered rows are read for it, so claim.sql asks only where something
is paused (measured: 0.4 s for 100,000 rows of 50,000 keys for a topic, 0.6 to 0.9 for a destination). */ -}}
{{define "unpaused"}}
   AND ({{template "ordered" .}} OR NOT {{template "paused" .}})
   {{- if or .Key .KeylessScope}}
   AND (NOT {{template "ordered" .}} OR {{template "order_key" .}} NOT IN (
           SELECT {{template "order_key" .}}
             FROM {{.Table}} e
            WHERE e.{{template "undelivered" .}}
              AND {{template "ordered" .}}
            GROUP BY 1
           HAVING min(e.{{.Position}}) = min(e.{{.Position}}) FILTER (WHERE {{template "paused" .}})))
   {{- end}}
{{- end}}

{{- /* $5 topics, $6 destinations as expressions of a name in quotes, $7 the template of destinations. */ -}}
{{define "paused" -}}
(e.{{.Topic}}::text LIKE ANY ($5::text[]) OR {{template "goes_to" .}} ~ ANY ($6::text[]))
{{- end}}

{{- /* Where an event goes, as a JSON array or as the one name in quotes. The key comes last: it may contain anything. */ -}}
{{define "goes_to" -}}
{{if .Destinations}}coalesce(nullif(nullif(e.{{.Destinations}}::text, '[]'), 'null'), {{end}}
       '"' || replace(replace(replace(replace(replace($7::text,
           '{topic}', e.{{.Topic}}::text),
           '{type}', {{if .AggregateType}}coalesce(e.{{.AggregateType}}::text, ''){{else}}''{{end}}),
           '{tenant}', coalesce({{template "tenant_name" .}}, '')),
           '{source}', {{if .Source}}coalesce(e.{{.Source}}::text, ''){{else}}''{{end}}),
           '{key}', {{if .Key}}coalesce(e.{{.Key}}::text, ''){{else}}''{{end}}) || '"'
{{- if .Destinations}}){{end}}
{{- end}}
