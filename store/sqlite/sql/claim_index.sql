-- claim: the partial indexes of a table that begin with a column and then give the order of positions. ?1 table, ?2 its database, ?3 and ?4 columns, ?5 whether the second is the rowid,
-- which every index ends with. Reads the schema only. Whether the planner takes one, whose condition may be another, is asked by EXPLAIN QUERY PLAN.
SELECT i.name
  FROM pragma_index_list(?1, ?2) AS i
 WHERE i.partial
   AND (SELECT c.name FROM pragma_index_info(i.name, ?2) AS c WHERE c.seqno = 0) = ?3
   AND coalesce((SELECT c.name FROM pragma_index_info(i.name, ?2) AS c WHERE c.seqno = 1) = ?4, ?5)
 ORDER BY i.name
