package config

// Removed tells what to do instead of a setting of an earlier version, by a name that somebody may write: --flag,
// VARIABLE or key of a file.
func Removed(name string) (instead string, ok bool) {
	instead, ok = removed[name]
	return instead, ok
}

var removed = map[string]string{
	"--redis":          "give --sink URL, or set OUTBOX_SINK",
	"OUTBOX_REDIS_URL": "set OUTBOX_SINK to the same URL",
	"redis":            "write sink: with the same URL",
	"--memory":         "give --sink memory:",
	"OUTBOX_MEMORY":    "set OUTBOX_SINK=memory:",
	"memory":           "write sink: \"memory:\"",
	"--postgres":       "give --database URL",
}
