-- bus: says for which application the rest of the transaction speaks. Row-level security compares rows with
-- it.
SELECT set_config('app.current_tenant', {{arg .}}::text, true)
