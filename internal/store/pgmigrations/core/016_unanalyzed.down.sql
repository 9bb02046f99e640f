ALTER TABLE outbox_maintenance RESET (autovacuum_analyze_threshold);
ALTER TABLE outbox_relays RESET (autovacuum_analyze_threshold);
