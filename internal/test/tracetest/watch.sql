-- What becomes of the events of some keys, in the order in which the database has it: n is drawn where a row changes,
-- and a key's rows change one after the other.
CREATE SCHEMA trace;
CREATE TABLE trace.steps (
    n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    what        text     NOT NULL, -- lease, written, changed, edited, replayed or effect
    key         text,              -- of a lease: NULL
    number      int,               -- the event's in its key, where its payload says so
    id          uuid,
    lane        smallint,
    owner       uuid,              -- who has the lane
    epoch       bigint,
    status      text,
    attempts    int,
    replays     int,
    transaction xid8        NOT NULL DEFAULT pg_current_xact_id(),
    snapshot    pg_snapshot NOT NULL DEFAULT pg_current_snapshot()
);

-- The lane of a row, as the relay computes it.
CREATE FUNCTION trace.lane(r outbox_events) RETURNS smallint LANGUAGE sql IMMUTABLE RETURN
    (hashtextextended(concat_ws(E'\x1f', r.tenant_id, coalesce(r.aggregate_type, ''), r.aggregate_id), 0) & 63)::smallint;

-- Run as who has made it: a relay has no rights here.
CREATE FUNCTION trace.event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $fn$
DECLARE
    r   outbox_events := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    did text          := CASE TG_OP WHEN 'INSERT' THEN 'written' ELSE 'changed' END;
BEGIN
    IF TG_OP = 'DELETE' THEN -- by a settle that removes what it delivers; or later, by retention
        IF r.status NOT IN ('NEW', 'FAILED') THEN
            RETURN NULL;
        END IF;
        r.status := 'SENT';
    ELSIF TG_OP = 'UPDATE' THEN
        IF NEW.generation > OLD.generation THEN
            did := 'replayed';
        ELSIF (NEW.status, NEW.retry_count) = (OLD.status, OLD.retry_count) THEN
            IF NEW.next_retry_at IS DISTINCT FROM OLD.next_retry_at THEN -- a relay that leaves it for later
                RETURN NULL;
            END IF;
            did := 'edited';
        END IF;
    END IF;
    INSERT INTO trace.steps (what, key, number, id, lane, owner, epoch, status, attempts, replays)
    SELECT did, r.aggregate_id, (r.payload ->> 'n')::int, r.id, of.lane, l.owner, l.epoch,
           r.status, r.retry_count, r.generation
      FROM trace.lane(r) of (lane) LEFT JOIN outbox_lanes l ON l.table_name = 'outbox_events' AND l.lane = of.lane;
    RETURN NULL;
END
$fn$;
CREATE TRIGGER trace_changes AFTER INSERT OR UPDATE ON outbox_events FOR EACH ROW
    WHEN (NEW.aggregate_id = ANY ('{KEYS}')) EXECUTE FUNCTION trace.event();
CREATE TRIGGER trace_ends AFTER DELETE ON outbox_events FOR EACH ROW
    WHEN (OLD.aggregate_id = ANY ('{KEYS}')) EXECUTE FUNCTION trace.event();

CREATE FUNCTION trace.lease() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $fn$
BEGIN
    INSERT INTO trace.steps (what, lane, owner, epoch) VALUES ('lease', NEW.lane, NEW.owner, NEW.epoch);
    RETURN NULL;
END
$fn$;
CREATE TRIGGER trace AFTER UPDATE ON outbox_lanes FOR EACH ROW
    WHEN (NEW.table_name = 'outbox_events' AND NEW.epoch <> OLD.epoch) EXECUTE FUNCTION trace.lease();

-- For a table of effects that has columns key and n.
CREATE FUNCTION trace.effect() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
    INSERT INTO trace.steps (what, key, number) VALUES ('effect', NEW.key, NEW.n);
    RETURN NULL;
END
$fn$;
