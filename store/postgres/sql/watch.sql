-- watch: whether one of several tables has undelivered rows, and what tells its leases from those of the look before.
-- $1 the tables' names in their leases, $2 those of the tables whose events they have, $3 which have undelivered rows
-- anyhow: of this table the {{.Number}}th. Locks nothing. Index: the partial one on the position of undelivered rows.
-- Not EXISTS, which leaves ORDER BY out, and with it the index.
SELECT {{.Number}},
       ($3::bool[])[{{.Number}}] OR
       (SELECT true FROM {{.Table}} e WHERE e.{{template "undelivered" .}} ORDER BY e.{{.Position}} LIMIT 1) IS NOT NULL,
       {{- template "watched_leases" .}}
