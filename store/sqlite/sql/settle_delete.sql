-- settle: deletes a row that reached every destination. ?1 position, ?2 id, ?3 generation, ?4 now.
-- Guarded as settle_delivered.sql; index: as there. A row that a pending letter needs stays, for settle_delivered.sql
-- to mark: an event that was replayed for one of its destinations, arrived there, and has a letter for another.
DELETE FROM {{.Table}} AS e WHERE {{template "removed" .}} AND ?4 IS NOT NULL

{{- define "removed"}}{{template "claimed" .}}{{template "unneeded" .}}{{end}}
