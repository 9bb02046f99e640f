-- backlog: how far behind the relays of a log are. Parameters as in log_behind (key.sql); the count stops at $2. Locks
-- nothing.
WITH {{template "log_behind" .}}
SELECT (SELECT count(*) FROM behind), (SELECT written FROM behind LIMIT 1), (SELECT id FROM behind LIMIT 1), now()
