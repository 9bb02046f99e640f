-- bus: a page of pending events for a look at them, in the order of their row ids. Locks nothing. Index:
-- idx_event_outbox_pending.
SELECT {{template "bus_columns"}}
  FROM event_outbox
 WHERE status = 'pending' AND id > {{arg .After}}{{with .App}} AND app_id = {{arg .}}{{end}}
 ORDER BY id
 LIMIT {{arg .Limit}}
