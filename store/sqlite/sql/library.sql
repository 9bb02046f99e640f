-- Which copy of SQLite this is, and the file it has open: its source and how it was compiled, in which two copies of
-- one version differ too. Locks nothing.
SELECT sqlite_source_id() || coalesce((SELECT group_concat(compile_options) FROM pragma_compile_options), ''),
       (SELECT file FROM pragma_database_list WHERE name = 'main')
