-- events: makes events due that wait for their next attempt, for an operator. Locks the rows that it changes. A relay
-- cannot have them in hand: it does not claim what is not due. Index: that of the waiting rows.
UPDATE {{.Table}} e
   SET {{.NextRetryAt}} = now()
 WHERE e.{{.NextRetryAt}} > now()
   AND e.{{template "undelivered" .}}{{template "events_selected" .}}
