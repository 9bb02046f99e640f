-- claim: notes how far lanes of a log have come that have nothing to settle. $1 table, $2 lanes, as bits, $3 position,
-- $4 snapshot, $5 and $6 those of a pass over late rows, or NULL, $7 the era. Not guarded: within its era the note is
-- true, whoever writes it.
INSERT INTO outbox_log_positions (table_name, lanes, position, snapshot, late_position, late_snapshot)
SELECT $1, $2, $3, $4::text::pg_snapshot, $5, $6::text::pg_snapshot FROM outbox_log_era WHERE one AND era = $7::text::uuid
