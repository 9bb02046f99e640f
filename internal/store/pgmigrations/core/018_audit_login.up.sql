-- Additive, in no seed: the database's own word of who it was. actor is what the program was told; roles.sql lets nobody
-- write this column or at. NULL: recorded before.
ALTER TABLE outbox_audit ADD COLUMN IF NOT EXISTS db_user TEXT;
ALTER TABLE outbox_audit ALTER COLUMN db_user SET DEFAULT session_user;
