// Package dedup is how long sinks that can remember deliveries refuse a copy.
//
// Guaranteed: it is the default of all of them, and of the command.
//
// Not guaranteed: that a sink can remember at all.
package dedup

import "time"

// DefaultWindow is how long, where nothing else is said.
const DefaultWindow = 2 * time.Minute
