-- reader: the processes that serve a table, or hold lanes of it and are stopping. Locks nothing. Index: the primary
-- keys.
SELECT r.name FROM outbox_relays r WHERE r.table_name = {{arg .Leased}} AND r.expires_at > {{template "now" .}}
UNION
SELECT coalesce(r.name, 'a process that is gone')
  FROM outbox_lanes l
  LEFT JOIN outbox_relays r ON r.table_name = l.table_name AND r.owner = l.owner
 WHERE l.table_name = {{arg .Leased}} AND l.owner IS NOT NULL AND l.expires_at > {{template "now" .}}
 ORDER BY 1
