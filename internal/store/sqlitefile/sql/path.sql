-- The path of the file that a handle has open. Takes no lock, and reads no page.
SELECT file FROM pragma_database_list WHERE name = 'main'
