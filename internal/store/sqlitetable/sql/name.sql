-- check: a table's name, and that of its database, as the schema spells them. ?1 table, ?2 its database, in any case.
-- No rows: there is no such table. Locks nothing.
SELECT t.name, t.schema FROM pragma_table_list(?1) AS t WHERE lower(t.schema) = lower(?2)
