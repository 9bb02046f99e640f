-- events: makes events due that wait for their next attempt, for an operator. Conditions that nobody asked for are
-- left out. Index: that of the waiting rows.
UPDATE {{.Table}} AS e
   SET {{.NextRetryAt}} = {{arg .Now}}
 WHERE e.{{.NextRetryAt}} IS NOT NULL AND (e.{{.NextRetryAt}} > {{arg .Now}} OR e.{{.NextRetryAt}} NOT GLOB '????-??-??T??:??:??.??????Z')
   AND e.{{template "undelivered" .}}{{template "events_selected" .}}
