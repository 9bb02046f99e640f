-- bus: says for which application the rest of the transaction speaks. $1 its id. Row-level security compares rows with
-- it.
SELECT set_config('app.current_tenant', $1, true)
