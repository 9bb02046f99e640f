-- adopt: the zones that an application's sessions may be in, each once, whose it is, and whether it is the database's:
-- what a session has that says nothing, as this one. Two are the same that have the same times in winter and in summer.
SELECT (array_agg(z.name ORDER BY z.n))[1], (array_agg(z.whose ORDER BY z.n))[1], bool_or(z.n = 2)
  FROM (SELECT 1 AS n, 'UTC' AS name, 'what many frameworks set' AS whose
        UNION ALL
        SELECT 2, reset_val, 'the database''s' FROM pg_settings WHERE name = 'TimeZone'
        UNION ALL
        SELECT 3, split_part(setting, '=', 2), coalesce('that of role ' || r.rolname, 'the database''s')
          FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS setting LEFT JOIN pg_roles r ON r.oid = s.setrole
         WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
           AND setting ILIKE 'timezone=%') z
 GROUP BY date '2026-01-01' AT TIME ZONE z.name, date '2026-07-01' AT TIME ZONE z.name
 ORDER BY min(z.n)
