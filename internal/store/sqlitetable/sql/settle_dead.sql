-- settle: marks (or, where the layout says so, removes) a row that cannot arrive, after settle_letter.sql. ?1 position,
-- ?2 id, ?3 generation, ?4 now, ?5 attempts, ?6 error.
-- Guarded as settle_delivered.sql. Index: the position's.
{{if .DeleteDead -}}
DELETE FROM {{.Table}} AS e
{{- else -}}
UPDATE {{.Table}} AS e
   SET {{.Status}} = {{.Dead}}, {{.NextRetryAt}} = NULL, {{.Attempts}} = ?5
       {{- if .LastError}}, {{.LastError}} = ?6{{end}}
       {{- if .ErrorHistory}},
       {{.ErrorHistory}} = json_insert({{template "history" .}}, '$[#]', json_object('error', ?6, 'timestamp', ?4)){{end}}
{{- end}}
 WHERE {{template "claimed" .}} AND ?4 IS NOT NULL AND ?5 IS NOT NULL AND ?6 IS NOT NULL
