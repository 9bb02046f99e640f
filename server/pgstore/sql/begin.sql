-- begin: a change. READ COMMITTED whatever the default is: the statements after a lock must see what it waited for.
BEGIN ISOLATION LEVEL READ COMMITTED
