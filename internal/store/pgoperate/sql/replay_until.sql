-- replay: until when delivered events may be chosen: $1 or now, whichever is sooner. By the database's clock, so that
-- what is put back cannot be chosen again. Reads nothing.
SELECT least($1::timestamptz, now())
