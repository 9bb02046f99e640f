-- conditions: how far the server's clock is from this machine's. Locks nothing.
SELECT 'warning', 'clock', format('the database''s clock is %s s %s this machine''s', round(abs(apart)::numeric, 1), CASE WHEN apart > 0 THEN 'ahead of' ELSE 'behind' END),
       NULL::timestamptz, NULL::text
  FROM (SELECT extract(epoch FROM clock_timestamp() - {{arg .Now}}::timestamptz)::float8 AS apart) AS clocks
 WHERE abs(apart) > {{arg .ClocksSeconds}}::float8
