-- lease: which topics of a table are paused; '' is all of them. ?1 table. Locks nothing. Index: outbox_pauses's primary
-- key; the table has a few rows, or none.
SELECT DISTINCT topic FROM outbox_pauses WHERE table_name IN ('', ?1) ORDER BY topic
