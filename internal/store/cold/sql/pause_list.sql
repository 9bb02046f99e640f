-- pause: all that is paused; of one table what concerns it. Locks nothing. Index: outbox_pauses's primary key; the
-- table has a few rows, or none.
SELECT table_name, topic, destination, reason, actor, paused_at
  FROM outbox_pauses
{{with .Leased}} WHERE table_name IN ('', {{arg .}}){{end}}
 ORDER BY table_name, topic, destination
