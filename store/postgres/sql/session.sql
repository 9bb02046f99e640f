-- session: the settings of a relay's statements; docs/adr/0003 has the reasons and figures, docs/adr/0018 why they
-- are set like
-- this. $1 whether they end with the transaction. If not, they are for the session, and set only if the server's
-- process is $2, the one that it named at connect: behind a pooler the session is not ours, and no row comes back.
-- The planner is pinned to ordered index scans: it knows neither that the queue is nearly always empty nor that
-- statistics taken during a backlog are stale a second later. Unpinned, each empty poll walked 8,000 dead index
-- entries; pinned, p50 latency went from 1.86 to 0.64 ms. work_mem: the keys whose head waits are hashed at every
-- claim; a set that is thought not to fit would be read again for every row. lock_timeout:
-- nothing waits long for what somebody else holds locked; a settle passes over such rows, a lease does without.
-- synchronous_commit=off is safe for a settle: one lost in a crash of the server is a second publish, which the sink
-- refuses. What must not be lost waits for the disk (durable.sql). TimeZone: a TIMESTAMP without a zone is an instant
-- by the session's, and must be the same one to every relay, whatever PGTZ and its role say.
SELECT set_config('enable_seqscan', 'off', $1),
       set_config('enable_bitmapscan', 'off', $1),
       set_config('enable_sort', 'off', $1),
       set_config('enable_hashjoin', 'off', $1),
       set_config('enable_mergejoin', 'off', $1),
       set_config('enable_material', 'off', $1),
       set_config('jit', 'off', $1),
       set_config('max_parallel_workers_per_gather', '0', $1),
       set_config('work_mem', '64MB', $1),
       set_config('plan_cache_mode', 'force_generic_plan', $1),
       set_config('synchronous_commit', 'off', $1),
       set_config('lock_timeout', '500ms', $1),
       set_config('idle_in_transaction_session_timeout', '60s', $1),
       set_config('TimeZone', coalesce({{template "recorded_zone"}}, current_setting('TimeZone')), $1)
 WHERE $1::boolean OR pg_backend_pid() = $2::bigint
