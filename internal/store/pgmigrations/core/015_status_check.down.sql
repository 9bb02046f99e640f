-- The former spelling, in which an application may have had it.
DO $do$
BEGIN
    IF EXISTS (SELECT FROM pg_constraint
                WHERE conrelid = 'outbox_events'::regclass AND conname = 'outbox_events_status_check'
                  AND pg_get_constraintdef(oid) = $have$CHECK (((status)::text = ANY ('{NEW,SENT,FAILED,DEAD}'::text[])))$have$) THEN
        ALTER TABLE outbox_events
            DROP CONSTRAINT outbox_events_status_check,
            ADD CONSTRAINT outbox_events_status_check CHECK (status IN ('NEW', 'SENT', 'FAILED', 'DEAD')) NOT VALID;
        IF NOT EXISTS (SELECT FROM outbox_events) THEN
            ALTER TABLE outbox_events VALIDATE CONSTRAINT outbox_events_status_check;
        END IF;
    END IF;
END
$do$;
