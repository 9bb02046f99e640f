-- lanes: how many rows of a log are behind the position of their lane. Parameters as in log_behind (key.sql). What a
-- sink has refused is counted by outbox_deliveries. Locks nothing.
WITH {{template "log_behind" .}}
SELECT lane, count(*), (array_agg(written ORDER BY position))[1], (array_agg(id ORDER BY position))[1], now(),
       0::bigint, 0::bigint, 0::bigint
  FROM behind
 GROUP BY lane
