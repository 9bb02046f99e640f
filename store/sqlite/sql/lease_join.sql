-- lease: enrols the caller among the relays of a table, or keeps it enrolled. ?1 table, ?2 owner, ?3 now, ?4 what it
-- has must last beyond, ?5 now and its time to live, ?6 name, ?7 what hinders it, as JSON, or NULL, ?8 its
-- sinks and routes, or NULL, ?9 the pauses that it obeys, or NULL.
-- Writes only when that has changed, or less than two thirds of its time are left, or more than all of it: the clock
-- was set back. Index: the primary key.
INSERT INTO outbox_relays AS r (table_name, owner, name, joined_at, expires_at, health, health_since, serves, paused, seen_at)
VALUES (?1, ?2, ?6, ?3, ?5, ?7, CASE WHEN ?7 IS NOT NULL THEN ?3 END, ?8, ?9, ?3)
ON CONFLICT (table_name, owner) DO UPDATE
   SET expires_at = excluded.expires_at, health = excluded.health, paused = excluded.paused, seen_at = excluded.seen_at,
       health_since = CASE WHEN r.health IS NOT NULL AND excluded.health IS NOT NULL THEN r.health_since ELSE excluded.health_since END
 WHERE r.expires_at < ?4 OR r.expires_at > ?5 OR r.health IS NOT excluded.health OR r.paused IS NOT excluded.paused
