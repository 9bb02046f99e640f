-- In no seed: what a consumer remembers, so that a copy of an event has no second effect (docs/guide/consuming.md). Ids stand in two tables that take turns: when all that one has is older than any consumer's window, it is truncated and becomes the one that is written to. No row is deleted, and none is dead.

CREATE TABLE IF NOT EXISTS outbox_inbox_0 (
    key     UUID        NOT NULL PRIMARY KEY,   -- of consumer, tenant and id: the first half of their SHA-256
    payload UUID,                               -- the same of the payload; NULL: it was not given
    at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS outbox_inbox_1 (LIKE outbox_inbox_0 INCLUDING ALL);

-- Which of the two is written to, and since when.
CREATE TABLE IF NOT EXISTS outbox_inbox_turn (
    one     BOOLEAN     NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    current SMALLINT    NOT NULL CHECK (current IN (0, 1)),
    since   TIMESTAMPTZ NOT NULL
);
INSERT INTO outbox_inbox_turn (current, since) VALUES (0, clock_timestamp()) ON CONFLICT DO NOTHING;

-- Who asks, and how long what he has handled is remembered at least.
CREATE TABLE IF NOT EXISTS outbox_inbox_consumers (
    consumer TEXT        NOT NULL PRIMARY KEY,
    keep     INTERVAL    NOT NULL,
    seen_at  TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- Effects outside of the database: who is at it, until when, and what came of it.
CREATE TABLE IF NOT EXISTS outbox_inbox_claims (
    key        UUID        NOT NULL PRIMARY KEY,   -- as in outbox_inbox_0
    payload    UUID,
    owner      UUID        NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    done_at    TIMESTAMPTZ,
    answer     BYTEA
);
CREATE INDEX IF NOT EXISTS outbox_inbox_claims_ended ON outbox_inbox_claims (coalesce(done_at, expires_at));

-- Remembers ids, in their order, until one is known: which is its number from 1, and known its payload. 0: all are new. A transaction that has not committed is waited for. The lock on outbox_inbox_turn, which ends with the transaction, keeps the turn from ending in between: it is a lock of the table, which only roles with rights on it can take, and not an advisory lock. A transaction with one snapshot for all of its statements must lock the turn itself, or it could miss that it has.
CREATE OR REPLACE FUNCTION outbox_once(ids uuid[], body uuid, windows interval[], OUT which integer, OUT known uuid)
LANGUAGE plpgsql AS $fn$
DECLARE
    turn         smallint;
    one_snapshot boolean;
BEGIN
    LOCK TABLE outbox_inbox_turn IN ACCESS SHARE MODE;
    SELECT t.current, current_setting('transaction_isolation') <> 'read committed' INTO STRICT turn, one_snapshot FROM outbox_inbox_turn t;
    IF one_snapshot THEN
        SELECT t.current INTO STRICT turn FROM outbox_inbox_turn t FOR SHARE;
    END IF;
    FOR n IN 1 .. cardinality(ids) LOOP
        IF turn = 0 THEN
            INSERT INTO outbox_inbox_0 (key, payload)
            SELECT ids[n], body
             WHERE NOT EXISTS (SELECT FROM outbox_inbox_1 i WHERE i.key = ids[n] AND i.at > clock_timestamp() - windows[n])
            ON CONFLICT DO NOTHING;
        ELSE
            INSERT INTO outbox_inbox_1 (key, payload)
            SELECT ids[n], body
             WHERE NOT EXISTS (SELECT FROM outbox_inbox_0 i WHERE i.key = ids[n] AND i.at > clock_timestamp() - windows[n])
            ON CONFLICT DO NOTHING;
        END IF;
        CONTINUE WHEN FOUND;
        -- It is known, unless its window is over: then what the other table has of it is older still.
        IF turn = 0 THEN
            UPDATE outbox_inbox_0 i SET at = clock_timestamp(), payload = body
             WHERE i.key = ids[n] AND i.at <= clock_timestamp() - windows[n];
        ELSE
            UPDATE outbox_inbox_1 i SET at = clock_timestamp(), payload = body
             WHERE i.key = ids[n] AND i.at <= clock_timestamp() - windows[n];
        END IF;
        CONTINUE WHEN FOUND;
        which := n;
        SELECT i.payload INTO known
          FROM (SELECT * FROM outbox_inbox_0 UNION ALL SELECT * FROM outbox_inbox_1) i
         WHERE i.key = ids[n]
         ORDER BY i.at DESC
         LIMIT 1;
        RETURN;
    END LOOP;
    which := 0;
END
$fn$;

-- Ends a turn that is over, and tells whether it did. It waits 100 ms for transactions that remember something: until they have ended, others wait behind it.
CREATE OR REPLACE FUNCTION outbox_inbox_sweep(OUT ended boolean) LANGUAGE plpgsql AS $fn$
DECLARE
    turn smallint;
BEGIN
    ended := false;
    IF NOT EXISTS (SELECT FROM outbox_inbox_turn t WHERE t.since + coalesce((SELECT max(c.keep) FROM outbox_inbox_consumers c), interval '15 days') <= clock_timestamp()) THEN
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', '100ms', true);
    LOCK TABLE outbox_inbox_turn IN ACCESS EXCLUSIVE MODE;
    UPDATE outbox_inbox_turn t SET current = 1 - t.current, since = clock_timestamp()
     WHERE t.since + coalesce((SELECT max(c.keep) FROM outbox_inbox_consumers c), interval '15 days') <= clock_timestamp()
    RETURNING t.current INTO turn;
    IF turn = 0 THEN
        TRUNCATE outbox_inbox_0;
    ELSIF turn = 1 THEN
        TRUNCATE outbox_inbox_1;
    END IF;
    IF turn IS NOT NULL THEN
        DELETE FROM outbox_inbox_claims c
         WHERE coalesce(c.done_at, c.expires_at) <= clock_timestamp() - coalesce((SELECT max(n.keep) FROM outbox_inbox_consumers n), interval '15 days');
    END IF;
    ended := turn IS NOT NULL;
END
$fn$;
