-- legacy: nobody writes while the last rows are filled and the table is rewritten.
LOCK TABLE {{.Table}} IN ACCESS EXCLUSIVE MODE
