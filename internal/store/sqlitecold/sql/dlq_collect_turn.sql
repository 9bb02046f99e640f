-- dlq: has those take turns who write letters of dead rows: a write transaction is the file's only one.
SELECT 1
