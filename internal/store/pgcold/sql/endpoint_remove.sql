-- endpoints: removes one. Locks its row. Index: the primary key.
DELETE FROM outbox_endpoints WHERE name = {{arg .Name}}
