-- adopt: how many seconds ago the newest time of a column was, read in each of the zones $1. NULL where there is none.
SELECT ARRAY(SELECT extract(epoch FROM clock_timestamp() - newest AT TIME ZONE z.name)::float8
               FROM unnest($1::text[]) WITH ORDINALITY z (name, n) ORDER BY z.n)
  FROM (SELECT max({{.Column}}) AS newest FROM {{.Table}} WHERE isfinite({{.Column}})) t
