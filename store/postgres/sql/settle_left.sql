-- settle: which of some rows were left because somebody else holds them locked, after statements that passed over
-- those. $1 table, $2 owner, $3 lanes, $4 epochs, $5 positions, ascending, $6 ids, $7 generations. Returns where in the
-- arrays, from 1. Locks nothing. Index: that of undelivered positions. In the same transaction, but with a snapshot of
-- its own: a row that was let go meanwhile, and nobody has settled, is among them too, and tried again.
-- A row of this transaction's own making (xmin) was settled: one to be retried is still undelivered.
WITH held AS MATERIALIZED (
    {{template "held"}}
)
SELECT o.n
  FROM ({{template "found" .}}) o
  JOIN {{.Table}} e ON e.ctid = o.at AND e.tableoid = o.part
 WHERE e.xmin IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid
