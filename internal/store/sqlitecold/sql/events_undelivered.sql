-- events: how many undelivered ones are chosen. Conditions that nobody asked for are left out. Locks nothing. Index:
-- that of undelivered positions.
SELECT count(*) FROM {{.Table}} AS e WHERE e.{{template "undelivered" .}}{{template "events_selected" .}}
