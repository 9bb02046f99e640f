-- claim: the partial indexes of a table that begin with some column and then give the order of another. ?1 table, ?2
-- its database, ?3 the first column, ?4 the second, or NULL where the first is enough; ?5 whether the second is the
-- rowid, which every index ends with. Reads the schema only. One whose condition is another SQLite refuses to use.
SELECT i.name
  FROM pragma_index_list(?1, ?2) AS i
 WHERE i.partial
   AND (SELECT lower(c.name) FROM pragma_index_info(i.name, ?2) AS c WHERE c.seqno = 0) = lower(?3)
   AND (?4 IS NULL OR coalesce((SELECT lower(c.name) FROM pragma_index_info(i.name, ?2) AS c WHERE c.seqno = 1) = lower(?4), ?5))
 ORDER BY i.name
