-- pause: pauses a topic or a destination of a table, or gives what is paused another reason. Index: the primary key.
INSERT INTO outbox_pauses (table_name, topic, destination, reason, actor, paused_at) VALUES ({{arg .Leased}}, {{arg .Topic}}, {{arg .Destination}}, {{arg .Reason}}, {{arg .Actor}}, {{arg .Now}})
ON CONFLICT (table_name, topic, destination) DO UPDATE SET reason = excluded.reason, actor = excluded.actor
