-- conditions: what the application has made on our tables that endangers them: foreign keys, triggers, rules,
-- inheritance and ways of storing. Locks nothing.
WITH ours AS (SELECT c.* FROM pg_class c
               WHERE c.oid IN (SELECT to_regclass(name) FROM unnest({{arg .Tables}}::text[]) AS name) AND c.relkind IN ('r', 'p'))
SELECT found.severity, found.name::text, found.says, NULL::timestamptz, found.remedy
  FROM (SELECT 'warning' AS severity, t.relname AS name,
               format('foreign key %I of %s refers to %s: %s', k.conname, k.conrelid::regclass, t.relname,
                      CASE k.confdeltype WHEN 'c' THEN 'removing a row also deletes the rows that refer to it'
                                         WHEN 'n' THEN 'removing a row changes the rows that refer to it'
                                         WHEN 'd' THEN 'removing a row changes the rows that refer to it'
                                         ELSE 'a row that is referred to cannot be removed' END) AS says,
               format('ALTER TABLE %s DROP CONSTRAINT %I', k.conrelid::regclass, k.conname) AS remedy
          FROM pg_constraint k JOIN ours t ON t.oid = k.confrelid WHERE k.contype = 'f' AND k.conparentid = 0
        UNION ALL
        SELECT 'advice', t.relname, format('trigger %I of %s calls %s, and can refuse or change what is written there', g.tgname, t.relname, g.tgfoid::regprocedure),
               format('if nobody needs it: DROP TRIGGER %I ON %s', g.tgname, t.oid::regclass)
          FROM pg_trigger g JOIN ours t ON t.oid = g.tgrelid JOIN pg_proc p ON p.oid = g.tgfoid
         WHERE NOT g.tgisinternal AND g.tgparentid = 0
           AND p.proname NOT IN ('outbox_events_refuse', 'event_outbox_refuse', 'crawl_outbox_tenant')
        UNION ALL
        SELECT 'warning', t.relname, format('rule %I of %s replaces statements', r.rulename, t.relname), format('DROP RULE %I ON %s', r.rulename, t.oid::regclass)
          FROM pg_rewrite r JOIN ours t ON t.oid = r.ev_class
        UNION ALL
        SELECT 'critical', t.relname, format('%s is UNLOGGED: a crash of the server empties it', t.relname), format('ALTER TABLE %s SET LOGGED', t.oid::regclass)
          FROM ours t WHERE t.relpersistence = 'u'
        UNION ALL
        SELECT 'advice', t.relname, format('%s has %s: it is larger than it needs to be', t.relname, o), format('ALTER TABLE %s RESET (fillfactor)', t.oid::regclass)
          FROM ours t, unnest(t.reloptions) AS o WHERE o ~ '^fillfactor=[1-4][0-9]$' AND t.relname NOT IN ('outbox_lanes', 'outbox_relays')
        UNION ALL
        SELECT 'warning', t.relname, format('table %s inherits from %s: rows are read in both', i.inhrelid::regclass, i.inhparent::regclass),
               format('ALTER TABLE %s NO INHERIT %s', i.inhrelid::regclass, i.inhparent::regclass)
          FROM pg_inherits i JOIN ours t ON t.oid IN (i.inhrelid, i.inhparent)
          JOIN pg_class parent ON parent.oid = i.inhparent AND parent.relkind = 'r') AS found
 ORDER BY found.name, found.says
