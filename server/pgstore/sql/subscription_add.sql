-- subscription: makes one, by outbox_subscribe. $1 name, $2 tenant, $3 types, $4 from, $5 whether from the
-- beginning, $6 lease in microseconds, $7 attempts. Locks the row it inserts.
SELECT outbox_subscribe($1, CASE WHEN $5::boolean THEN '-infinity' ELSE $4::timestamptz END, $3::text[], nullif($2, ''),
                        $6::bigint * interval '1 microsecond', $7::int)
