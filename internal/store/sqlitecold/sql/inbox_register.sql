-- inbox: notes a consumer and for how long its ids are kept at least. Index: the primary key.
INSERT INTO outbox_inbox_consumers (consumer, keep, seen_at) VALUES ({{arg .Consumer}}, {{arg .Keep}}, {{arg .Now}})
ON CONFLICT (consumer) DO UPDATE SET keep = excluded.keep, seen_at = excluded.seen_at
