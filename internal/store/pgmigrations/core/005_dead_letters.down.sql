DROP TABLE IF EXISTS outbox_audit;
DROP INDEX IF EXISTS job_dlq_discarded;
DROP INDEX IF EXISTS job_dlq_replayed;
DROP INDEX IF EXISTS job_dlq_replay;
ALTER TABLE job_dlq DROP COLUMN IF EXISTS origin;
ALTER TABLE job_dlq DROP COLUMN IF EXISTS position;
