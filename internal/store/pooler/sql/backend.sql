-- pooler: which process serves this connection now. Changes nothing, locks nothing.
SELECT pg_catalog.pg_backend_pid()
