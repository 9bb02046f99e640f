-- legacy: plans for this session. position has no statistics yet, so the planner expects a handful of rows where all are to do, and would
-- fetch and sort the whole rest for every batch.
SET enable_seqscan = off;
SET enable_sort = off;
