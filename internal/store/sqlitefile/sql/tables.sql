-- The tables of a file, whoever made them. Reads SQLite's own list, a page or two, before anything of ours opens the
-- file; takes no lock that a writer would wait for.
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name
