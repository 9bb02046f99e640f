-- troubles: what hinders relays that are alive, as they have told. Locks nothing. Reads all of
-- outbox_relays, a few rows.
SELECT name, table_name, health_since, health FROM outbox_relays WHERE health IS NOT NULL AND expires_at > {{arg .Now}} ORDER BY 1, 2
