-- subscription: makes one, by outbox_subscribe. Locks the row it inserts.
SELECT outbox_subscribe({{arg .Name}}, {{if .Earliest}}'-infinity'{{else}}{{arg .From}}::timestamptz{{end}}, {{arg .Types}}::text[],
                        nullif({{arg .Tenant}}, ''), {{arg .Microseconds}}::bigint * interval '1 microsecond', {{arg .MaxAttempts}}::int)
