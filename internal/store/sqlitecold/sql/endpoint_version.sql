-- endpoints: what tells whether a row has changed. Locks nothing. No index: the table has hundreds of rows, and is
-- asked once a second while there is something to deliver.
SELECT count(*) || '/' || coalesce(sum(revision), 0) FROM outbox_endpoints
