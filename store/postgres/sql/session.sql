-- session: the settings of a relay's own sessions; ADR 3 has the reasons and figures.
-- The planner is pinned to ordered index scans: it knows neither that the queue is nearly always empty nor that statistics taken during a
-- backlog are stale a second later. Unpinned, each empty poll walked 8,000 dead index entries; pinned, p50 latency went from 1.86 to 0.64 ms.
-- synchronous_commit=off is safe for a settle: one lost in a crash of the server is a second publish, which the sink refuses.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
-- The keys whose head waits are hashed at every claim; a set that is thought not to fit would be read again for every row.
SET work_mem = '64MB';
SET plan_cache_mode = force_generic_plan;
SET synchronous_commit = off;
-- Nothing waits long for what somebody else holds locked: a settle passes over such rows, a lease does without.
SET lock_timeout = '500ms';
SET idle_in_transaction_session_timeout = '60s'
