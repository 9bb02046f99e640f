-- events: how many undelivered ones are chosen. $1 ids, $2 tenant, $3 key, $4 topic; NULL for no such condition. Locks
-- nothing. Index: that of undelivered positions.
SELECT count(*)
  FROM {{.Table}} e
 WHERE e.{{template "undelivered" .}}
   AND {{template "events_selected" .}}
