DROP TABLE job_dlq;
