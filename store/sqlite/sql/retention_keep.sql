-- retention: puts rows that were found into the archive table, if they are still due, before retention_remove.sql. ?1
-- before when they were delivered, ?2 a JSON array of positions, of letters ids, ?3 table, ?4 now. Index: as there. A
-- row that could not be stored must fail: it is deleted next.
INSERT INTO outbox_archive (table_name, id, position, archived_at, row)
SELECT ?3, {{template "archived_id" .}}, {{template "retention_position" .}}, ?4, {{template "whole_row" .}}
  FROM {{.Table}} AS e
 WHERE {{template "found_rows" .}}
