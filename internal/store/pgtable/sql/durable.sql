-- lease, settle: has the commit of this transaction wait for the disk, unlike the others of a relay's sessions. After a
-- crash of the server two relays must not both believe that they hold a lane. What is behind an owed delivery in its
-- key is owed too, and what is behind a dead event goes out: a server that has forgotten the one may not know of the
-- other. Locks nothing. No index.
SELECT set_config('synchronous_commit', 'on', true)
