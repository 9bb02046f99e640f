-- conditions: leases that end later than any relay asks for: a clock was wrong, or somebody wrote them. Locks nothing.
SELECT 'critical', r.table_name, format('the lease of relay %s on %s ends at %s: nobody takes over from it before', r.name, r.table_name, to_char(r.expires_at, 'YYYY-MM-DD HH24:MI')),
       NULL::timestamptz, format('DELETE FROM outbox_relays WHERE table_name = %L AND owner = %L', r.table_name, r.owner)
  FROM outbox_relays r
 WHERE r.expires_at > clock_timestamp() + interval '1 hour'
