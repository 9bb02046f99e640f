package postgres

// ConnectPool opens the sessions of a DB, for tests that look at them.
var ConnectPool = connect
