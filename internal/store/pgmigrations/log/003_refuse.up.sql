-- Additive, in no seed: as core/020_refuse, whose function it is.
DROP TRIGGER IF EXISTS outbox_log_refuse ON outbox_log;
CREATE TRIGGER outbox_log_refuse BEFORE INSERT ON outbox_log FOR EACH ROW EXECUTE FUNCTION outbox_events_refuse();
