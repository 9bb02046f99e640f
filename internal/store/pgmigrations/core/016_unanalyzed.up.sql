-- Additive, in no seed: the rows of relays and of retention are not analyzed any more. They are a few, found by their
-- keys. A relay's row is rewritten 18 times a minute, and by default 50 changes are an ANALYZE. So autovacuum read the
-- relays of three tables every minute, and their statistics were most of what an idle relay wrote to the log after a
-- checkpoint (30 of 41 KB).
ALTER TABLE outbox_relays SET (autovacuum_analyze_threshold = 1000000);
ALTER TABLE outbox_maintenance SET (autovacuum_analyze_threshold = 1000000);
