-- No CASCADE: what still points here should stop the drop, not vanish with it.
DROP TABLE IF EXISTS apps;
DROP FUNCTION IF EXISTS outbox_uuidv7();
