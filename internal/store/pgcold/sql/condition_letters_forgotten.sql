-- conditions: dead letters that have been pending for too long, by their table. Ids are UUIDv7, and made of times.
-- Locks nothing. Index: idx_job_dlq_pending_source.
SELECT 'warning', coalesce(l.outbox_table, l.source || 's'), format('%s dead letters of %s have been pending for longer than %s, the first since %s', count(*),
              coalesce(l.outbox_table, l.source || 's'), justify_interval(make_interval(secs => {{arg .ForgottenSeconds}}::float8)),
              to_char(min(l.died_at), 'YYYY-MM-DD HH24:MI')), min(l.died_at), NULL::text
  FROM (SELECT p.source, p.outbox_table, to_timestamp(('x' || translate(left(p.id::text, 13), '-', ''))::bit(48)::bigint / 1000.0) AS died_at
          FROM job_dlq p
         WHERE p.replayed_at IS NULL AND p.discarded_at IS NULL AND substr(p.id::text, 15, 1) = '7'
         LIMIT 10000) AS l
 WHERE l.died_at < {{arg .Now}}::timestamptz - make_interval(secs => {{arg .ForgottenSeconds}}::float8)
 GROUP BY 2
