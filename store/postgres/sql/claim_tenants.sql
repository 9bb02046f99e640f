-- claim: the tenants that have undelivered rows, in a circle from the one behind $1 (NULL: from the first), at most $2.
-- Locks nothing. Goes from tenant to tenant, not from row to row: an index probe each, whatever a tenant has queued.
-- UNION drops a tenant that was seen before, and so ends the circle; LIMIT ends it sooner, because a row is only made
-- when it is asked for.
-- Index: that of undelivered rows by tenant and position, found by claim_index.sql.
WITH RECURSIVE first AS MATERIALIZED ( -- looked for once, because it steps over all that is delivered and not vacuumed
    SELECT e.{{.By}} AS id FROM {{.Table}} e WHERE e.{{template "undelivered" .}} AND e.{{.By}} IS NOT NULL
     ORDER BY e.{{.By}}{{.Collate}} LIMIT 1
), tenant (id) AS (
    SELECT coalesce((SELECT e.{{.By}} FROM {{.Table}} e WHERE e.{{template "undelivered" .}} AND e.{{.By}}{{.Collate}} > $1::text::{{.Type}}
                      ORDER BY e.{{.By}}{{.Collate}} LIMIT 1), (SELECT id FROM first))
    UNION
    SELECT coalesce((SELECT e.{{.By}} FROM {{.Table}} e WHERE e.{{template "undelivered" .}} AND e.{{.By}}{{.Collate}} > t.id
                      ORDER BY e.{{.By}}{{.Collate}} LIMIT 1), (SELECT id FROM first))
      FROM tenant t WHERE t.id IS NOT NULL
)
SELECT id::text FROM tenant WHERE id IS NOT NULL LIMIT $2
