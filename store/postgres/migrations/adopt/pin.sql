-- adopt: plans for this transaction. New columns have no statistics yet, so the planner would read the whole table for each batch.
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off
