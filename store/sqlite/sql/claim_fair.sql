-- claim: the oldest undelivered rows of one tenant. ?1 lanes, a bit each; ?2 now; ?3 limit; ?4 the tenant; ?5 rows to
-- look at when none is due.
-- Reads one state of the file and locks nothing. Asked for each tenant of a fair claim: there is no LATERAL here, and a
-- statement that is prepared costs microseconds.
-- Index: that of undelivered rows by tenant and position, found by claim_index.sql. By its name: with an equality the
-- planner may take another that walks over the flood.
SELECT {{template "claim_columns" .}}
  FROM (SELECT *
          FROM {{.Table}} AS e INDEXED BY {{.OfTenants}}
         WHERE e.{{template "undelivered" .}} AND e.{{.By}} = ?4
         ORDER BY e.{{.Position}}
         LIMIT coalesce(?5, NULL)) AS e
 WHERE {{template "due" .}}
 ORDER BY e.{{.Position}}
 LIMIT coalesce(?3, NULL)
