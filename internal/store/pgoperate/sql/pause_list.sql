-- pause: all that is paused; with $1 what concerns that table. Locks nothing. Index: outbox_pauses's primary key; the
-- table has a few rows, or none.
SELECT table_name, topic, destination, reason, actor, paused_at
  FROM outbox_pauses
 WHERE $1::text IS NULL OR table_name IN ('', $1)
 ORDER BY table_name, topic, destination
