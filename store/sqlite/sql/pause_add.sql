-- pause: pauses a topic of a table, or gives what is paused another reason. ?1 table, ?2 topic, ?3 reason, ?4 actor, ?5
-- now. Index: the primary key.
INSERT INTO outbox_pauses (table_name, topic, reason, actor, paused_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (table_name, topic) DO UPDATE SET reason = excluded.reason, actor = excluded.actor
