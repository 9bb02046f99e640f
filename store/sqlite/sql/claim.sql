-- claim: the oldest undelivered rows of some lanes. ?1 lanes, a bit each; ?2 now; ?3 limit.
-- Reads one state of the file and locks nothing: who may read a lane is settled by the lease.
-- coalesce in LIMIT, here and elsewhere: given the parameter itself the planner looks at its value, and compiles the
-- whole statement again whenever one is bound, even the same (measured: 99 us a claim that finds nothing, and 4 like
-- this).
-- Index: the partial one on the position of undelivered rows, in order, so that LIMIT stops it. By its name, if the
-- table has one: with statistics the planner prefers the seed's (status, id, ...) of event_outbox, and sorts the whole
-- backlog for each claim. claim_row.sql has the columns and the conditions.
SELECT {{template "claim_columns" .}}
  FROM {{.Table}} AS e{{with .Undelivered}} INDEXED BY {{.}}{{end}}
 WHERE e.{{template "undelivered" .}}
   AND {{template "due" .}}
 ORDER BY e.{{.Position}}
 LIMIT coalesce(?3, NULL)
