-- settle: writes one dead letter a failed destination for rows of a log. The rows stay as they are. Parameters as in
-- settle_dead.sql, but for the lanes of the entries, $14. Locks the rows of the lanes, so that they cannot change hands
-- before it is done. A letter that is there is not written again: a settle whose reply was lost is sent again. Indexes:
-- that of positions, and that of letters by their event. The applications exist: settle_apps.sql ran before.
-- With Unreadable, NoPayload and Bare as settle_dead.sql.
WITH held AS MATERIALIZED (
    {{template "held"}}
       FOR SHARE OF l
), failure AS MATERIALIZED (
    SELECT *
      FROM unnest($5::bigint[], $6::uuid[], $7::int[], $8::int[], $9::text[], $10::text[], $11::text[], $14::smallint[])
           AS f (position, id, generation, attempts, error, reason, destination, lane)
     WHERE f.lane = ANY (ARRAY(SELECT lane FROM held))
)
INSERT INTO job_dlq (source, original_job_id, app_id, user_id, request_id, type, payload, error_reason, attempts,
                     error_history, destination, outbox_table, event_key, generation, position, origin, tenant)
SELECT 'event', e.{{.ID}}, (SELECT a.id FROM apps a WHERE lower(a.namespace) = lower({{template "letter_tenant" .}})),
       {{if .Unreadable}}r.user_id, r.request_id, r.topic, r.payload{{else}}{{template "letter_user" .}}, {{template "letter_request" .}}, e.{{.Topic}}, e.{{.Payload}}::jsonb{{end}}, f.reason, f.attempts,
       jsonb_build_array(jsonb_build_object('error', f.error, 'timestamp', now())),
       nullif(f.destination, ''), $13, {{if .Unreadable}}r.key{{else}}e.{{.Key}}::text{{end}}, e.{{.Generation}}, e.{{.Position}},
       {{if .Unreadable}}{{template "letter_origin" .}}{{else}}to_jsonb(e) - {{.PayloadName}}{{end}}, {{template "letter_tenant" .}}
  FROM failure f
  JOIN {{.Table}} e ON e.{{.Position}} = f.position AND e.{{.ID}} = f.id
  {{- if .Unreadable}}
 CROSS JOIN LATERAL (SELECT {{template "letter_reduced" .}}) r
  {{- end}}
 WHERE NOT EXISTS (SELECT FROM job_dlq d
                    WHERE d.original_job_id = e.{{.ID}} AND d.outbox_table = $13 AND d.position = e.{{.Position}}
                      AND d.destination IS NOT DISTINCT FROM nullif(f.destination, ''))

{{- define "letter_tenant"}}{{if .Unreadable}}$12{{else}}coalesce(nullif(e.{{.Tenant}}::text, ''), $12){{end}}{{end}}
