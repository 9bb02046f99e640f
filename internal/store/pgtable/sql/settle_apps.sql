-- settle: makes sure that the tenants of dead letters have an application to point at. $1 namespaces.
-- A letter without one could not be kept, and an event must not be lost because nobody registered its tenant.
INSERT INTO apps (name, namespace)
SELECT n, n FROM unnest($1::text[]) AS n
ON CONFLICT DO NOTHING
