-- write: the encoding of the connection, and whether what is written through it is stored as it was written.
-- SQL_ASCII converts nothing. Locks nothing.
SELECT pg_client_encoding(), {{template "encoding"}}

{{- define "encoding" -}}
(pg_client_encoding() = 'UTF8' OR pg_client_encoding() = 'SQL_ASCII' AND getdatabaseencoding() IN ('UTF8', 'SQL_ASCII'))
{{- end}}
