-- settle: rows that cannot arrive. Marks (or, where the layout says so, removes) them and writes one dead letter a
-- failed destination, in one statement.
-- $1 table, $2 owner, $3 lanes, $4 epochs; one entry a failure: $5 positions, ascending, $6 ids, $7 generations, $8
-- attempts, $9 errors, $10 reasons, $11 destinations;
-- $12 default tenant, $13 the table as the layout names it. Locks the rows it changes; guarded as in
-- settle_delivered.sql. The applications exist: settle_apps.sql ran before.
-- With Unreadable, for a row whose letter was refused, the letter holds the payload as a JSON string, no user or
-- request, and the default tenant, and the row gets no error text. With NoPayload the payload is null too, and with
-- Bare the topic and the key are missing.
WITH held AS MATERIALIZED (
    {{template "held"}}
), failure AS MATERIALIZED (
    SELECT *
      FROM unnest($5::bigint[], $6::uuid[], $8::int[], $9::text[], $10::text[], $11::text[])
           AS f (position, id, attempts, error, reason, destination)
), dead AS (
    {{if .DeleteDead -}}
    DELETE FROM {{.Table}} e
     USING ({{template "found" .}}) o
    {{- else -}}
    UPDATE {{.Table}} e
       SET {{.Status}} = {{.Dead}}, {{.NextRetryAt}} = NULL{{if not .Unreadable}}, {{.Attempts}} = ($8::int[])[o.n]{{end}}
           {{- if and .LastError (not .Unreadable)}}, {{.LastError}} = {{template "all_errors" .}}{{end}}
           {{- if and .ErrorHistory (not .Unreadable)}},
           {{.ErrorHistory}} = coalesce(e.{{.ErrorHistory}}, '[]') || jsonb_build_object('error', {{template "all_errors" .}}, 'timestamp', now()){{end}}
      FROM ({{template "found" .}}) o
    {{- end}}
     WHERE {{template "same_row" .}}
    RETURNING e.{{.Position}} AS position, e.{{.ID}} AS id, {{if .Generation}}coalesce(e.{{.Generation}}, 0){{else}}0{{end}} AS generation,
              {{- if .Unreadable}}
              {{template "letter_reduced" .}}, {{if .DeleteDead}}{{template "letter_origin" .}}{{else}}NULL::jsonb{{end}} AS origin,
              NULL::uuid AS app_id, $12 AS tenant, '[]'::jsonb AS history
              {{- else}}
              coalesce(e.{{.Topic}}::text, '') AS topic, coalesce(e.{{.Payload}}::jsonb, 'null') AS payload,
              {{if .Key}}e.{{.Key}}::text{{else}}NULL::text{{end}} AS key,
              {{template "letter_user" .}} AS user_id, {{template "letter_request" .}} AS request_id,
              {{if .DeleteDead}}to_jsonb(e) - {{.PayloadName}}{{else}}NULL::jsonb{{end}} AS origin,
              {{if .App}}e.{{.App}}{{else}}NULL::uuid{{end}} AS app_id,
              {{if .Tenant}}coalesce(nullif(e.{{.Tenant}}::text, ''), $12){{else}}$12{{end}} AS tenant
              {{- if .ErrorHistory}}, coalesce(e.{{.ErrorHistory}}, '[]'){{else}}, '[]'::jsonb{{end}} AS history
              {{- end}}
), letter AS (
    INSERT INTO job_dlq (source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts,
                         error_history, destination, outbox_table, event_key, generation, position, origin, tenant)
    SELECT 'event', d.id, coalesce(d.app_id, (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower(d.tenant))),
           d.user_id, d.request_id, d.topic, d.payload, f.reason, f.attempts,
           {{- /* RETURNING gives the updated row, its history complete; a deleted row's lacks the last entry. */}}
           d.history{{if or .Unreadable .DeleteDead (not .ErrorHistory)}} || jsonb_build_object('error', f.error, 'timestamp', now()){{end}},
           nullif(f.destination, ''), $13, d.key, d.generation, d.position, d.origin, CASE WHEN d.app_id IS NULL THEN d.tenant END
      FROM dead d JOIN failure f ON f.position = d.position AND f.id = d.id
)
SELECT count(*) FROM dead

{{- define "all_errors"}}(SELECT string_agg(f.error, '; ') FROM failure f WHERE f.position = e.{{.Position}}){{end}}
