-- subscription: makes a subscription, by outbox_subscribe. The answer is NULL if the tenant has as many as it may.
-- Requests that run at the same time can together make a few more. The statement counts the tenant's subscriptions,
-- which are few, and locks the row that it inserts.
SELECT CASE WHEN {{arg .Limit}}::int <= (SELECT count(*) FROM outbox_subscriptions s WHERE s.tenant = {{arg .Tenant}} AND s.name <> {{arg .Name}})
                 AND NOT EXISTS (SELECT FROM outbox_subscriptions s WHERE s.name = {{arg .Name}}) THEN NULL
            ELSE outbox_subscribe({{arg .Name}}, {{if .Earliest}}'-infinity'{{else}}{{arg .From}}::timestamptz{{end}}, {{arg .Types}}::text[],
                                  nullif({{arg .Tenant}}, ''), {{arg .Microseconds}}::bigint * interval '1 microsecond', {{arg .MaxAttempts}}::int) END
