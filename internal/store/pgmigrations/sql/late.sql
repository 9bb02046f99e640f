-- adopt: events after the terminal one of their run.
SELECT count(*)
  FROM {{.Table}} e
  JOIN (SELECT {{.Run}} AS run, min(id) AS id FROM {{.Table}}
         WHERE event_type IN ('RUN_COMPLETED', 'RUN_FAILED', 'RUN_CANCELLED') GROUP BY 1) ended
    ON e.{{.Run}} = ended.run AND e.id > ended.id
