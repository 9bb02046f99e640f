-- inbox: ends a turn that is over. Locks out all who remember something, for as long as a TRUNCATE takes; waits 100 ms
-- for them, with a lock of outbox_inbox_turn. No index: the tables have a row, and one a consumer.
SELECT ended FROM outbox_inbox_sweep()
