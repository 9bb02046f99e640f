-- claim: the oldest undelivered rows of some lanes. ?1 lanes, a bit each; ?2 now; ?3 limit.
-- Reads one state of the file and locks nothing: who may read a lane is settled by the lease.
-- Index: the partial one on the position of undelivered rows, in order, so that LIMIT stops it. claim_row.sql has the columns and the conditions.
SELECT {{template "claim_columns" .}}
  FROM {{.Table}} AS e
 WHERE e.{{template "undelivered" .}}
   AND {{template "due" .}}
 ORDER BY e.{{.Position}}
 LIMIT ?3
