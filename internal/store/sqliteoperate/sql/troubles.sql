-- troubles: what hinders relays that are alive at ?1, as they have told. Locks nothing. Reads all of
-- outbox_relays, a few rows.
SELECT name, table_name, health_since, health FROM outbox_relays WHERE health IS NOT NULL AND expires_at > ?1 ORDER BY 1, 2
