-- legacy: plans for this transaction. position has no statistics yet, so the planner expects a handful of rows where
-- all are to do, and would fetch and sort the whole rest for every batch.
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
SET LOCAL jit = off;
