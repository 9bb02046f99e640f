-- pause: pauses a topic of a table, or gives what is paused another reason. $1 table, $2 topic, $3 reason, $4 actor.
-- Locks its row. Index: the primary key.
INSERT INTO outbox_pauses (table_name, topic, reason, actor) VALUES ($1, $2, $3, $4)
ON CONFLICT (table_name, topic) DO UPDATE SET reason = excluded.reason, actor = excluded.actor
