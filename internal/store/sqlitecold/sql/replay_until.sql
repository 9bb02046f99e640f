-- replay: the time by the machine's clock, which is that of the rows. Reads nothing.
SELECT {{arg .Now}}
