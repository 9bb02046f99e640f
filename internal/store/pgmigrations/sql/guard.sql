-- export: before the first of the steps one of which makes a table that Up would adopt.
DO $do$
BEGIN
    -- A table of this name that was there before would be taken for Outbox's and fail half way.
    IF to_regclass(format('%I.{{.Table}}', current_schema())) IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute
         WHERE attrelid = to_regclass(format('%I.{{.Relation}}', current_schema())) AND NOT attisdropped{{if .Column}}
           AND attname = '{{.Column}}'{{end}}) THEN
        RAISE EXCEPTION 'table {{.Table}} is there already, and was not made by Outbox'
            USING ERRCODE = 'duplicate_table',
                  DETAIL = 'It has no {{if .Column}}column {{.Column}}{{else}}index {{.Relation}}{{end}}.',
                  HINT = {{template "adopt_hint"}};
    END IF;
END
$do$;
{{define "adopt_hint" -}}
    'Adopt it: `outbox migrate up`, then these files again (docs/guide/adopting.md, "With your own migration tool").'
{{- end}}
