-- conditions: which versions of relays, gateways and workers are connected to this database, by what they call
-- themselves. Who has set another application_name is not seen. Locks nothing. Reads the server's list of sessions.
SELECT 'advice', 'relays', format('%s versions are connected to this database: %s', count(*), string_agg(format('%s (%s)', version, parts), ', ' ORDER BY version)),
       NULL::timestamptz, NULL::text
  FROM (SELECT split_part(a.application_name, ' ', 3) AS version, string_agg(DISTINCT split_part(a.application_name, ' ', 2), ', ') AS parts
          FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.application_name ~ '^outbox (relay|gateway|worker) \S+( \S+)?$'
         GROUP BY 1) AS connected
HAVING count(*) > 1
