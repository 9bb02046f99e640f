-- adopt: whether the role may make the schema in which the files' tables are made for comparison.
SELECT has_database_privilege(current_database(), 'CREATE')
