-- conditions: which of our tables have more dead rows than rows, by the server's statistics. Locks nothing.
SELECT 'advice', s.relname, format('%s has %s dead rows beside %s live ones; vacuumed %s', s.relname, s.n_dead_tup, s.n_live_tup,
              coalesce('last at ' || to_char(greatest(s.last_vacuum, s.last_autovacuum), 'YYYY-MM-DD HH24:MI:SS'), 'never')),
       greatest(s.last_vacuum, s.last_autovacuum), format('VACUUM %s', s.relid::regclass)
  FROM pg_stat_user_tables s
 WHERE s.relid IN (SELECT to_regclass(name) FROM unnest({{arg .Tables}}::text[]) AS name)
   AND s.n_dead_tup > {{arg .DeadRows}}::int AND s.n_dead_tup > s.n_live_tup
