-- dlq: makes sure that the tenant of a letter has an application to point at. Index: that of namespaces.
INSERT INTO apps (name, namespace) VALUES ({{template "text" (arg .Tenant)}}, {{template "text" (arg .Tenant)}}) ON CONFLICT DO NOTHING
