-- endpoints: removes one. $1 name. Locks its row. Index: the primary key.
DELETE FROM outbox_endpoints WHERE name = $1
