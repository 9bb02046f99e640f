-- subscription: pauses or resumes one, and records it. No row: it was so already. Locks its row.
WITH changed AS (
    UPDATE outbox_subscriptions s SET paused_at = CASE WHEN {{arg .Paused}}::boolean THEN now() END
     WHERE {{template "subscription_own" .}} AND (s.paused_at IS NULL) = {{arg .Paused}}::boolean
    RETURNING s.name, s.tenant
)
INSERT INTO outbox_audit (actor, action, letters, filter, reason)
SELECT {{arg .By.Actor}}, CASE WHEN {{arg .Paused}}::boolean THEN 'pause' ELSE 'resume' END, 0,
       jsonb_strip_nulls(jsonb_build_object('subscription', c.name, 'tenant', c.tenant)), nullif({{arg .By.Reason}}, '')
  FROM changed c
RETURNING true
