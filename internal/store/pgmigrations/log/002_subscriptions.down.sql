DROP FUNCTION IF EXISTS outbox_nack(text, uuid, uuid, text, interval, text);
DROP FUNCTION IF EXISTS outbox_ack(text, uuid[], uuid[]);
DROP FUNCTION IF EXISTS outbox_next(text, int, interval);
DO $do$
BEGIN
    IF to_regtype('outbox_subscriptions') IS NOT NULL THEN   -- their arguments' types
        DROP FUNCTION IF EXISTS outbox_subscription_fetch(outbox_subscriptions, int);
        DROP FUNCTION IF EXISTS outbox_subscription_event(outbox_subscription_events);
    END IF;
END
$do$;
DROP FUNCTION IF EXISTS outbox_subscription_bury(text, bigint[], text);
DROP FUNCTION IF EXISTS outbox_rewind(text, timestamptz);
DROP FUNCTION IF EXISTS outbox_subscribe(text, timestamptz, text[], text, interval, int);
DROP FUNCTION IF EXISTS outbox_log_rebase();
DROP FUNCTION IF EXISTS outbox_log_place(timestamptz);
DROP TABLE IF EXISTS outbox_subscription_events, outbox_subscriptions;
