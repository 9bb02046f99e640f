-- pause: resumes a topic or a destination of a table. Locks its row. Index: the primary key.
DELETE FROM outbox_pauses WHERE table_name = {{arg .Leased}} AND topic = {{arg .Topic}} AND destination = {{arg .Destination}}
