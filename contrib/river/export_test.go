package outboxriver

// LettersSQL is EXPLAINed by a test.
var LettersSQL = lettersSQL
