-- check: the columns of a table, and what the schema says of them. ?1 table, ?2 its database. No rows: there is no such
-- table. Locks nothing.
SELECT c.name, upper(c.type), c."notnull", c.pk, t.wr, t.strict, t.type = 'table',
       c.pk = 1 AND 1 = (SELECT count(*) FROM pragma_table_xinfo(?1, ?2) AS k WHERE k.pk > 0)
       OR EXISTS (SELECT 1 FROM pragma_index_list(?1, ?2) AS i
                   WHERE i."unique" AND NOT i.partial
                     AND (SELECT group_concat(k.name, char(31)) FROM pragma_index_info(i.name, ?2) AS k) = c.name)
  FROM pragma_table_list(?1) AS t, pragma_table_xinfo(?1, ?2) AS c
 WHERE lower(t.schema) = lower(?2)
