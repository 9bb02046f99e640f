-- check: the database and its encoding.
SELECT current_database()::text, getdatabaseencoding()::text
