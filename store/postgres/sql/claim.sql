-- claim: the oldest undelivered rows of some lanes. $1 lanes, $2 limit, $3 keys and $4 ids to leave out.
-- Locks nothing, writes nothing: who may read a lane is settled by the lease.
-- Index: the partial one on the position of undelivered rows, in order, so that LIMIT stops it. claim_row.sql has the
-- columns and the conditions.
-- With Unreadable, everything of a size, shape or (in a mapped table) type that can make a row unreadable is left out.
-- With OneByOne, the rows are cut first and each one's columns computed as it goes out. Where no index gives the order,
-- the plain statement sorts what it has computed, and a row that cannot be read ends it before the first. (Not always
-- so: it costs 5 % of a claim.)
SELECT {{template "claim_columns" .}}
  FROM {{if .OneByOne}}(SELECT e.*, e.ctid FROM {{end}}{{.Table}} e
 WHERE e.{{template "undelivered" .}}
   AND {{template "due" .}}
 ORDER BY e.{{.Position}}
 LIMIT $2{{if .OneByOne}}) e{{end}}
