package outboxriver

// LettersSQL is EXPLAINed by a test, and LockSQL run by one.
var (
	LettersSQL = lettersSQL
	LockSQL    = lockSQL
)
