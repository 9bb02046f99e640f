-- endpoints: removes one. Index: the primary key.
DELETE FROM outbox_endpoints WHERE name = {{arg .Name}}
