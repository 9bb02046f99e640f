-- migrate: records a set's version as golang-migrate does: no row is no version. Locks the table.
TRUNCATE {{.Table}}{{if .Version}};
INSERT INTO {{.Table}} (version, dirty) VALUES ({{.Version}}, false){{end}}
