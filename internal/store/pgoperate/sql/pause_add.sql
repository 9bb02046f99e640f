-- pause: pauses a topic or a destination of a table, or gives what is paused another reason. $1 table, $2 topic, $3
-- destination, $4 reason, $5 actor. Locks its row. Index: the primary key.
INSERT INTO outbox_pauses (table_name, topic, destination, reason, actor) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (table_name, topic, destination) DO UPDATE SET reason = excluded.reason, actor = excluded.actor
