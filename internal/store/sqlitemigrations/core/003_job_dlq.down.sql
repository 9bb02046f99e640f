DROP TABLE outbox_audit;
DROP TABLE job_dlq;
