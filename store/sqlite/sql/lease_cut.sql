-- lease: what ends later than anybody can have asked for was written before the clock was set back, and would be
-- nobody's until the old time came, if its owner died. It is cut, not taken: an owner that is alive looks within half a
-- second and writes it anew. ?1 table, ?2 the latest that somebody can have asked for, ?3 when it ends now. Of lanes or
-- of relays.
-- Index: the primary key.
UPDATE {{.}} SET expires_at = ?3 WHERE table_name = ?1 AND expires_at > ?2
