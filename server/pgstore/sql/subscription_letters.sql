-- subscription: whether this role may read dead letters.
SELECT has_table_privilege('job_dlq', 'SELECT')
