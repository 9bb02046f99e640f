-- adopt: a zone as the server spells it. $1 its name in any case.
SELECT name FROM pg_timezone_names WHERE lower(name) = lower($1)
