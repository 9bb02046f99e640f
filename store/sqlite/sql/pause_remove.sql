-- pause: resumes a topic of a table. ?1 table, ?2 topic. Index: the primary key.
DELETE FROM outbox_pauses WHERE table_name = ?1 AND topic = ?2
