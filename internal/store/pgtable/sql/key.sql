{{- /*
What orders a table's rows: the hash of the key, and the lane, which is that hash's last six bits. Rows without a key
are one sequence per value of KeylessScope, as if that value were their key. Without KeylessScope they have no order and
spread over the lanes by id. Computed here, in the database, so that writers in every
language agree, and when claiming rather than in stored columns (docs/adr/0004). A hash, so that it is eight bytes;
two keys that share one merely wait for each other. U+001F keeps ('ab', 'c') and ('a', 'bc') apart.
*/ -}}

{{define "order_key" -}}
    {{- if and .Key .KeylessScope -}} hashtextextended(coalesce({{template "key_text" .}}, {{template "sequence_text" .}}), 0)
    {{- else if .Key -}} hashtextextended({{template "key_text" .}}, 0)
    {{- else if .KeylessScope -}} hashtextextended({{template "sequence_text" .}}, 0)
    {{- else -}} NULL::bigint
    {{- end -}}
{{- end}}

{{- /* Whether a row has an order_key. */ -}}
{{define "ordered" -}}
    {{- if .KeylessScope}}true{{else if .Key}}e.{{.Key}} IS NOT NULL{{else}}false{{end -}}
{{- end}}

{{define "sequence_text"}}E'\x1f' || coalesce(e.{{.KeylessScope}}::text, ''){{end}}

{{- /* What a sink owes has the lane of its event, so that a sink that remembers by lanes knows it again. */ -}}
{{define "lane" -}}
    {{- if .Part -}} e.lane
    {{- else if .KeylessScope -}} ({{template "order_key" .}} & 63)::smallint
    {{- else -}} (coalesce({{template "order_key" .}}, hashtextextended(e.{{.ID}}::text, 0)) & 63)::smallint
    {{- end -}}
{{- end}}

{{define "key_text" -}}
    {{- range .KeyScope}}coalesce(e.{{.}}::text, '') || E'\x1f' || {{end}}e.{{.Key}}::text
{{- end}}

{{- /* When a row was written. The first 48 bits of a UUIDv7 are milliseconds. */ -}}
{{define "written_at" -}}
    {{- if .WrittenAt -}} e.{{.WrittenAt}}::timestamptz
    {{- else if .TimeID -}} CASE WHEN substr(e.{{.TimeID}}::text, 15, 1) = '7'
         THEN to_timestamp(('x' || translate(left(e.{{.TimeID}}::text, 13), '-', ''))::bit(48)::bigint / 1000.0) END
    {{- else -}} NULL::timestamptz
    {{- end -}}
{{- end}}

{{- /* A column of times as it is shown: no earlier than the year 1 and no later than 9999-12-31 UTC, which is also how
the infinities are shown. Go's time has none, and JSON has no other years. NULL stays NULL, a parked row (next attempt
at infinity) is parked, and a time by which a row counts as delivered does not get lost. */ -}}
{{define "shown_time" -}}
    CASE WHEN e.{{.}} IS NOT NULL THEN greatest(least(e.{{.}}::timestamptz, '9999-12-31 00:00Z'), '0001-01-01 00:00Z') END
{{- end}}

{{define "shown_written_at" -}}
    {{- if .WrittenAt}}{{template "shown_time" .WrittenAt}}{{else}}{{template "written_at" .}}{{end -}}
{{- end}}

{{define "shown_tenant" -}}
    {{- if .Tenant}}e.{{.Tenant}}::text{{else if .App}}(SELECT a.namespace FROM apps a WHERE a.id = e.{{.App}}){{else}}NULL::text{{end -}}
{{- end}}

{{- /* A log's row does not tell, so it is none of them. */ -}}
{{define "undelivered" -}}
    {{- if .Transaction -}}
        {{.Transaction}} IS NULL
    {{- else if .Status -}}
        {{.Status}} IN ({{.Pending}}{{if ne .Retrying .Pending}}, {{.Retrying}}{{end}})
    {{- else -}}
        {{.DeliveredAt}} IS NULL
    {{- end -}}
    {{- if .Part}} AND e.{{.Part}} = {{.PartValue}}{{end -}}
{{- end}}

{{- /* The lanes that the caller still owns at the epoch it knows: $1 table, $2 owner, $3 lanes, $4 epochs. The epoch is
looked up: a join of the two lists was a nested loop of 64 times 64 (1.0 ms; like this 0.1). */ -}}
{{define "held" -}}
    SELECT l.lane
      FROM outbox_lanes l
     WHERE l.table_name = $1 AND l.owner = $2
       AND l.epoch = ($4::bigint[])[array_position($3::smallint[], l.lane)]
{{- end}}

{{- /* How far each lane of a log has come. $1 table, $3 number of lanes. */ -}}
{{define "log_places" -}}
place AS MATERIALIZED (
    SELECT array_agg(position ORDER BY lane) AS positions, min(position) AS lowest, max(position) AS highest
      FROM (SELECT l.lane, coalesce((SELECT p.position FROM ({{template "log_place"}}) p), 0) AS position
              FROM generate_series(0, $3::int - 1) AS l (lane)) known
)
{{- end}}

{{- /* Whether a row is behind the position of its lane in log_places. */ -}}
{{define "log_unread" -}}
    e.{{.Position}} > ((SELECT positions FROM place))[{{template "lane" .}} + 1]
{{- end}}

{{- /* How far a lane of a log has come: what each row says is true for ever, so the furthest counts. $1 table; the lane
is l.lane. Index: the primary key. */ -}}
{{define "log_place" -}}
    SELECT *
      FROM outbox_log_positions p
     WHERE p.table_name = $1 AND p.lanes & (1::bigint << l.lane) <> 0
     ORDER BY p.position DESC, p.id DESC
     LIMIT 1
{{- end}}
