-- adopt: whether the application of ADR-004's default tenant was there before.
SELECT EXISTS (SELECT FROM apps WHERE lower(namespace) = 'default')
