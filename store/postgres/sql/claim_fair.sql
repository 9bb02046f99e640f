-- claim: the oldest undelivered rows of each of some tenants. $1 lanes, $2 limit, $3 keys and $4 ids to leave out, $5
-- tenants, $6 rows to look at for each of them, $7 rows of each.
-- Locks nothing, writes nothing, as claim.sql. The first row of every tenant comes before the second of any, so that
-- whoever stops reading has served all alike; a key lies within one tenant, so its rows stay in their order. $6 is
-- there for a tenant whose rows are all in other relays' lanes, or behind a key that waits: what lies deeper is left to
-- claim.sql.
-- Index: that of undelivered rows by tenant and position, found by claim_index.sql. BETWEEN, because with an equality
-- the planner takes the index of positions as well, which has the order too, and walks over the flood to find the few.
SELECT {{template "claim_columns" .}}
  FROM unnest($5::text[]) AS tenant (id)
 CROSS JOIN LATERAL (
        SELECT e.*, row_number() OVER (ORDER BY e.{{.By}}{{.Collate}}, e.{{.Position}}) AS "turn of its tenant"
          FROM (SELECT e.*, e.ctid
                  FROM {{.Table}} e
                 WHERE e.{{template "undelivered" .}}
                   AND e.{{.By}}{{.Collate}} BETWEEN tenant.id::{{.Type}} AND tenant.id::{{.Type}}
                 ORDER BY e.{{.By}}{{.Collate}}, e.{{.Position}}
                 LIMIT $6) e
         WHERE {{template "due" .}}
         ORDER BY e.{{.By}}{{.Collate}}, e.{{.Position}}
         LIMIT $7) e
 ORDER BY e."turn of its tenant", e.{{.Position}}
 LIMIT $2
