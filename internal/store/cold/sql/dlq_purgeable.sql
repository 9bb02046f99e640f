-- dlq: how many letters dlq_purge.sql would delete. Locks nothing. Index: as there.
SELECT count(*) FROM job_dlq l WHERE {{template "dlq_old" .}}
