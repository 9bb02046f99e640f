-- conditions: which settings the relays have that are connected to this database, by the digits behind their version
-- (config.Fingerprint): those of settings, and of the tables to be served. Locks nothing. Reads the server's list of
-- sessions.
SELECT 'advice', 'relays', format('relays of the same tables have %s different settings: %s', count(*), string_agg(format('%s (%s)', settings, clients), ', ' ORDER BY settings)),
       NULL::timestamptz, NULL::text
  FROM (SELECT split_part(digits, '/', 1) AS settings, split_part(digits, '/', 2) AS tables,
               string_agg(DISTINCT coalesce('from ' || host(a.client_addr), 'by a socket'), ', ') AS clients
          FROM pg_stat_activity a, split_part(a.application_name, ' ', 4) digits
         WHERE a.datname = current_database() AND a.application_name ~ '^outbox relay \S+ \S+$'
         GROUP BY 1, 2) AS connected
 GROUP BY tables
HAVING count(*) > 1
