-- conditions: consumers that remember ids for less long than delivered events stay in their tables, from which they can
-- be replayed. Locks nothing. Reads a row for each consumer.
SELECT 'warning', c.consumer, format('consumer %s remembers ids for %s, and events can be replayed until their rows are removed after %s', c.consumer, justify_hours(c.keep),
                                     justify_hours(make_interval(secs => {{arg .KeptSeconds}}::float8))), NULL::timestamptz, NULL::text
  FROM outbox_inbox_consumers c
 WHERE c.keep < make_interval(secs => {{arg .KeptSeconds}}::float8)
