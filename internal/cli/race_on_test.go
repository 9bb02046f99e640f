//go:build race

package cli_test

// raceDetector: the binary under test is built as this test is.
const raceDetector = true
