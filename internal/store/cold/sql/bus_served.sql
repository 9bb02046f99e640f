-- bus: whether a relay or a group serves the table. Locks nothing. Index: the primary key.
SELECT count(*) FROM outbox_relays WHERE table_name = 'event_outbox' AND expires_at > {{template "now" .}}
