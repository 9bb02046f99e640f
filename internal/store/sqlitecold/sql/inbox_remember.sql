-- inbox: remembers an id in the table that is written to, unless it has it: then no row. In a write transaction.
-- Index: the primary key.
INSERT INTO {{.Table}} AS i (key, payload, at) VALUES ({{arg .Key}}, {{arg .Payload}}, {{arg .Now}})
ON CONFLICT (key) DO UPDATE SET at = excluded.at, payload = excluded.payload WHERE i.at <= {{arg .Cut}}
RETURNING 1
