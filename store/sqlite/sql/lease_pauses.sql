-- lease: what is paused of a table: topics, destinations, or, with neither, all of it. ?1 table, ?2 the one whose
-- events it has, which of outbox_deliveries is another. Locks nothing. Index: outbox_pauses's primary key; the table
-- has a few rows, or none.
SELECT DISTINCT topic, destination FROM outbox_pauses WHERE table_name IN ('', ?1, ?2) ORDER BY topic, destination
