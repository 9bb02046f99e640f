-- claim: the oldest undelivered rows of some lanes. $1 lanes, $2 limit.
-- Locks nothing, writes nothing: who may read a lane is settled by the lease.
-- Index: the partial one on the position of undelivered rows, in order, so that LIMIT stops it. claim_row.sql has the columns and the conditions.
-- With Unreadable, everything of a size or shape that can make a row unreadable is left out.
SELECT {{template "claim_columns" .}}
  FROM {{.Table}} e
 WHERE e.{{template "undelivered" .}}
   AND {{template "due" .}}
 ORDER BY e.{{.Position}}
 LIMIT $2
