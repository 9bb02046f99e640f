-- run: bounds how long the server waits for the transaction's next statement. A change and a claim read, think, and
-- write; one whose process is stopped in between (SIGSTOP, a frozen machine) would keep the run's row locked, and no
-- other worker could take the run over. Locks nothing.
SET LOCAL idle_in_transaction_session_timeout = '10s'
