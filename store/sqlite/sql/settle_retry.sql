-- settle: a row to try again. ?1 position, ?2 id, ?3 generation, ?4 now, ?5 attempts, ?6 when it is due, ?7 error (''
-- for none), ?8 destinations already served (a JSON array, or NULL). Guarded as settle_delivered.sql. Index: the
-- position's.
-- A table may have no columns for some of them, but a statement must name all its parameters.
UPDATE {{.Table}} AS e
   SET {{if .Status}}{{.Status}} = {{.Retrying}},{{end}}
       {{.Attempts}} = ?5,
       {{.NextRetryAt}} = ?6
       {{- if .LastError}},
       {{.LastError}} = coalesce(nullif(?7, ''), e.{{.LastError}}){{end}}
       {{- if .ErrorHistory}},
       {{.ErrorHistory}} = CASE WHEN ?7 = '' THEN e.{{.ErrorHistory}} ELSE json_insert({{template "history" .}}, '$[#]', json_object('error', ?7, 'timestamp', ?4)) END{{end}}
       {{- if .DeliveredTo}},
       {{.DeliveredTo}} = ?8{{end}}
 WHERE {{template "claimed" .}} AND ?4 IS NOT NULL AND ?7 IS NOT NULL AND coalesce(?8, '') IS NOT NULL
