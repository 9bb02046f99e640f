ALTER TABLE outbox_endpoints
    DROP COLUMN IF EXISTS topics,
    DROP COLUMN IF EXISTS types;
