-- legacy: nobody writes while the last rows are filled and finish.sql runs, and nobody reads: its ALTER TABLE takes
-- this lock anyway, and taking it at once cannot deadlock with a reader who is about to write.
LOCK TABLE {{.Table}} IN ACCESS EXCLUSIVE MODE
