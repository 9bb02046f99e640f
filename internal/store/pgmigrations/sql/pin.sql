-- adopt: plans for this transaction. New columns have no statistics yet, so the planner would read the whole table for
-- each batch. What is switched off here counts as expensive, for which a statement would be compiled: 2 s on a busy
-- machine, each time.
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
SET LOCAL jit = off;
