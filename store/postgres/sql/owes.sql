-- owes: of which lanes and sinks outbox_deliveries has rows that are neither delivered nor dead. $1 table, $2 lanes, $3
-- sinks. Locks nothing. Index: outbox_deliveries_lanes, once for each lane and sink.
SELECT l.lane, s.sink
  FROM unnest($2::smallint[]) AS l (lane), unnest($3::text[]) AS s (sink)
 WHERE EXISTS (SELECT FROM outbox_deliveries d
                WHERE d.queue = $1 || '/' || s.sink AND d.lane = l.lane AND d.status = 'pending')
