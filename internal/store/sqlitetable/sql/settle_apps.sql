-- settle: makes sure that the tenant of a dead letter has an application to point at. ?1 namespace.
-- A letter without one could not be kept, and an event must not be lost because nobody registered its tenant.
INSERT INTO apps (name, namespace) VALUES (?1, ?1) ON CONFLICT DO NOTHING
