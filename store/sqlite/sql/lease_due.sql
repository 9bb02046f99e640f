-- lease: whether lease_rows, lease_cut, lease_join, lease_quit or lease_take would write anything: the caller reads
-- this before it waits for the file's write lock. ?1 table, ?2 owner, ?3 now, ?4 what it has must last beyond, ?5 now
-- and its time to live, ?6 number of lanes, ?7 whether it is leaving, ?8 the latest that somebody can have asked for,
-- ?9 what hinders it, as JSON, or NULL, ?10 its reader, or '' if none is recorded, ?11 the pauses that it obeys, or
-- NULL. Locks nothing. Index: the primary keys.
WITH {{template "share"}}, lane AS (
    SELECT owner, expires_at FROM outbox_lanes WHERE table_name = ?1
)
SELECT (SELECT count(*) FROM lane) < ?6
    OR EXISTS (SELECT 1 FROM outbox_relays WHERE table_name = ?1 AND owner = ?2 AND (?7 OR expires_at < ?4 OR expires_at > ?5 OR health IS NOT ?9 OR paused IS NOT ?11))
    OR NOT ?7 AND NOT EXISTS (SELECT 1 FROM outbox_relays WHERE table_name = ?1 AND owner = ?2)
    OR EXISTS (SELECT 1 FROM outbox_relays WHERE table_name = ?1 AND expires_at > ?8)
    OR EXISTS (SELECT 1 FROM lane WHERE expires_at > ?8)
    OR EXISTS (SELECT 1 FROM lane WHERE owner = ?2 AND (expires_at <= ?4 OR expires_at > ?5))
    OR ?10 <> '' AND NOT EXISTS (SELECT 1 FROM outbox_readers WHERE table_name = ?1 AND reader = ?10)
    OR (SELECT count(*) FROM lane WHERE owner = ?2) < (SELECT lanes FROM share)
       AND EXISTS (SELECT 1 FROM lane WHERE owner IS NULL OR owner <> ?2 AND expires_at <= ?3)

{{- /* How many lanes the caller ?2 should hold at ?3: all relays that are alive get the same number, the first ones,
in the order of their ids, one more, and one that is leaving, which is not among them, none. A relay that yields because
its sink is unavailable gets none either while another relay is alive that reports no problem of its sinks or the
table. ?6 number of lanes. */ -}}
{{define "share" -}}
    share (lanes) AS (
    SELECT CASE WHEN count(*) FILTER (WHERE owner = ?2) = 0 THEN 0
                ELSE ?6 / count(*) + (count(*) FILTER (WHERE owner < ?2) < ?6 % count(*)) END
      FROM outbox_relays
     WHERE table_name = ?1 AND (owner = ?2 OR expires_at > ?3)
       AND (json_extract(health, '$.yields') IS NULL
            OR NOT EXISTS (SELECT 1 FROM outbox_relays h
                            WHERE h.table_name = ?1 AND h.expires_at > ?3 AND json_extract(h.health, '$.sinks') IS NULL
                              AND json_extract(h.health, '$.table') IS NULL))
)
{{- end}}
