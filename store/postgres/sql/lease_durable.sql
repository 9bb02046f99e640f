-- lease: turns synchronous commit on again for one transaction: after a crash of the server two relays must not both
-- believe that they hold a lane.
SET LOCAL synchronous_commit = on
