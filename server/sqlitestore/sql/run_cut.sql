-- run: cuts a lease that ends later than anybody can have asked for, as lease_cut.sql does. ?1 run, ?2 when it ends
-- now. In the transaction of run_next.sql, which has found it.
-- Index: the primary key.
UPDATE crawl_runs SET lease_expires_at = ?2 WHERE id = ?1
