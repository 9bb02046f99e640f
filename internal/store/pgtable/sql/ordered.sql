-- ordered: is there an index that gives a table's rows in the order of a column? $1 table, $2 column. outbox_events has
-- none on its position: it would be paid at every insert and every settle.
SELECT EXISTS (
    SELECT FROM pg_index i
      JOIN pg_class c ON c.oid = i.indexrelid
      JOIN pg_am m ON m.oid = c.relam
      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
     WHERE i.indrelid = to_regclass($1) AND a.attname = $2 AND m.amname = 'btree' AND i.indpred IS NULL AND i.indisvalid)
