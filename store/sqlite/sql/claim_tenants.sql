-- claim: the tenants that have undelivered rows, in a circle from the one behind ?1 (NULL: from the first), at most ?2.
-- Locks nothing. Goes from tenant to tenant, not from row to row: an index probe each, whatever a tenant has queued.
-- UNION drops a tenant that was seen before, and so ends the circle.
-- Index: that of undelivered rows by tenant and position, found by claim_index.sql.
WITH RECURSIVE tenant (id) AS (
    SELECT coalesce((SELECT e.{{.By}} FROM {{.Table}} AS e INDEXED BY {{.OfTenants}} WHERE e.{{template "undelivered" .}} AND e.{{.By}} > ?1 ORDER BY e.{{.By}} LIMIT 1), {{template "first_tenant" .}})
    UNION
    SELECT coalesce((SELECT e.{{.By}} FROM {{.Table}} AS e INDEXED BY {{.OfTenants}} WHERE e.{{template "undelivered" .}} AND e.{{.By}} > t.id ORDER BY e.{{.By}} LIMIT 1), {{template "first_tenant" .}})
      FROM tenant t WHERE t.id IS NOT NULL
     LIMIT coalesce(?2, NULL)
)
SELECT id FROM tenant WHERE id IS NOT NULL

{{- define "first_tenant"}}(SELECT e.{{.By}} FROM {{.Table}} AS e INDEXED BY {{.OfTenants}} WHERE e.{{template "undelivered" .}} AND e.{{.By}} IS NOT NULL ORDER BY e.{{.By}} LIMIT 1){{end}}
