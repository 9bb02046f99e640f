-- dlq: makes sure that the tenant of a letter has an application to point at. Index: that of namespaces.
INSERT INTO apps (name, namespace) VALUES ({{arg .Tenant}}::text, {{arg .Tenant}}::text) ON CONFLICT DO NOTHING
