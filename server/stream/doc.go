// Package stream sends events to any number of readers: the history from a log, then what is
// published, live.
//
// Guaranteed: a reader gets every event of a run after its cursor, in order, each once, whatever
// the broker does. The log is the truth, and what arrives from the broker says no more than when to
// read it. So nobody who can publish can show a run's reader anything. An event that the broker
// loses is found in the log within the poll interval (200 ms). A reader that is slow is served from
// the log at its own pace; no other reader waits for it, and it costs no memory but its own page.
//
// Not guaranteed: anything about events that are in no log. [Topics] says what holds for those that
// have no number of their own.
//
// It knows no HTTP and no database: package gateway serves readers, and the log and the broker are
// interfaces.
package stream
