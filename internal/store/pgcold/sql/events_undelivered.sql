-- events: how many undelivered ones are chosen. Locks
-- nothing. Index: that of undelivered positions.
SELECT count(*)
  FROM {{.Table}} e
 WHERE e.{{template "undelivered" .}}{{template "events_selected" .}}
