-- Additive, in no seed: as core/020_refuse, for the one column of this table that the relay refuses.
CREATE OR REPLACE FUNCTION event_outbox_refuse() RETURNS trigger LANGUAGE plpgsql AS $fn$
BEGIN
    IF NEW.event_type::pg_catalog.text OPERATOR(pg_catalog.=) '' THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'event_type is empty',
            CONSTRAINT = 'event_outbox_type_not_empty';
    END IF;
    RETURN NEW;
END
$fn$;

DROP TRIGGER IF EXISTS event_outbox_refuse ON event_outbox;
CREATE TRIGGER event_outbox_refuse BEFORE INSERT ON event_outbox FOR EACH ROW EXECUTE FUNCTION event_outbox_refuse();
