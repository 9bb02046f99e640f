-- dlq: the columns of a table that an INSERT may name: all but generated ones. ?1 the table's name, ?2 its database.
SELECT name FROM pragma_table_xinfo(?1, ?2) WHERE hidden = 0 ORDER BY cid
