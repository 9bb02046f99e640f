-- retention: puts rows that were found into the archive table, if they are still due, before
-- retention_remove.sql. Index: as there. A row that could not be stored must fail: it is deleted next.
INSERT INTO outbox_archive (table_name, id, position, archived_at, row)
SELECT {{arg .Name}}, {{template "archived_id" .}}, {{template "retention_position" .}}, {{arg .Now}}, {{template "whole_row" .}}
  FROM {{.Table}} AS e
 WHERE {{template "found_rows" .}}
