-- pause: resumes a topic or a destination of a table. ?1 table, ?2 topic, ?3 destination. Index: the primary key.
DELETE FROM outbox_pauses WHERE table_name = ?1 AND topic = ?2 AND destination = ?3
