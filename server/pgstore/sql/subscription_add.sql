-- subscription: makes one, by outbox_subscribe. NULL: the tenant has as many as it may; requests at the same time can
-- pass that by a few. Locks the row it inserts. The tenant's are counted, which are few.
SELECT CASE WHEN {{arg .Limit}}::int <= (SELECT count(*) FROM outbox_subscriptions s WHERE s.tenant = {{arg .Tenant}} AND s.name <> {{arg .Name}})
                 AND NOT EXISTS (SELECT FROM outbox_subscriptions s WHERE s.name = {{arg .Name}}) THEN NULL
            ELSE outbox_subscribe({{arg .Name}}, {{if .Earliest}}'-infinity'{{else}}{{arg .From}}::timestamptz{{end}}, {{arg .Types}}::text[],
                                  nullif({{arg .Tenant}}, ''), {{arg .Microseconds}}::bigint * interval '1 microsecond', {{arg .MaxAttempts}}::int) END
