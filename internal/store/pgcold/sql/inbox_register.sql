-- inbox: notes a consumer and for how long its ids are kept at least. Locks its row. Index: the primary key.
INSERT INTO outbox_inbox_consumers (consumer, keep) VALUES ({{arg .Consumer}}::text, {{arg .Keep}}::bigint * interval '1 microsecond')
ON CONFLICT (consumer) DO UPDATE SET keep = excluded.keep, seen_at = now()
