package config

import "strings"

// Removed tells what to do instead of a setting of an earlier version, by a name that somebody may write: --flag,
// VARIABLE or key of a file.
func Removed(name string) (instead string, ok bool) {
	if instead, ok = removed[name]; ok {
		return instead, true
	}
	flag := strings.TrimPrefix(name, "--")
	if variable, ok := strings.CutPrefix(name, prefix); ok {
		flag = strings.ToLower(variable)
	}
	if flag != name || !strings.Contains(name, "-") {
		instead, ok = decided[key(flag)]
	}
	return instead, ok
}

const part = "give those that are on to parts, such as --parts gateway,relay (OUTBOX_PARTS, parts: [gateway, relay])"

// removed have become another setting.
var removed = map[string]string{
	"--redis":          "give --sink URL, or set OUTBOX_SINK",
	"OUTBOX_REDIS_URL": "set OUTBOX_SINK to the same URL",
	"redis":            "write sink: with the same URL",
	"--memory":         "give --sink memory:",
	"OUTBOX_MEMORY":    "set OUTBOX_SINK=memory:",
	"memory":           "write sink: \"memory:\"",
	"--postgres":       "give --database URL",

	"--layout":      "give --layouts FILE",
	"OUTBOX_LAYOUT": "set OUTBOX_LAYOUTS to the same file",
	"layout":        "write layouts: [FILE]",
	"--route":       "give --routes TABLE=SINK",
	"OUTBOX_ROUTE":  "set OUTBOX_ROUTES to the same text",
	"route":         "write routes: [TABLE=SINK]",
	"--gateway":     part, "OUTBOX_GATEWAY": part, "gateway": part,
	"--relay": part, "OUTBOX_RELAY": part, "relay": part,
	"--worker": part, "OUTBOX_WORKER": part, "worker": part,
}

// decided are settings that the program decides now, by their keys in a file.
var decided = map[string]string{
	"poll_min": "take it away, a relay polls every 2ms while events arrive; poll_max says how often an idle one does",
	"backoff_factor": "take it away, each wait is twice as long as the one before; an entry of retry in the file of " +
		"--config has its own backoff_factor",
	"backoff_cap": "take it away, no wait is longer than 15m; an entry of retry in the file of --config has its own " +
		"backoff_cap",
	"dedup_prefix": "take it away, and let the relay's Redis user have the keys ~outbox:seen:*; tables and databases do " +
		"not meet there",
	"retention_every": "take it away, a relay looks for old rows every minute; outbox purge removes them at once",
	"retention_batch": "take it away, a transaction removes up to 1000 rows, with a pause as long as it took before the " +
		"next",
	"run_lease_ttl": "set lease_ttl (--lease-ttl, OUTBOX_LEASE_TTL), which is for runs too",
	"stream_max_age": "take it away, a stream ends after 30m, give or take a fifth, and its client goes on where " +
		"it was",
	"stream_drain":        "take it away, streams end 10ms apart on average, and within 5s however many there are",
	"stream_limit_tenant": "set stream_limit (--stream-limit, OUTBOX_STREAM_LIMIT); a quarter of it is for one tenant",
	"stream_limit_run": "set stream_limit (--stream-limit, OUTBOX_STREAM_LIMIT); a twentieth, and at least 1000, " +
		"may be of one run",
	"stream_limit_topics": "set stream_limit (--stream-limit, OUTBOX_STREAM_LIMIT); its streams follow a fifth as many " +
		"topics, and at least 4000",
	"stream_limit_topics_tenant": "set stream_limit (--stream-limit, OUTBOX_STREAM_LIMIT); a tenant's streams follow a " +
		"twentieth as many topics, and at least 1000",
	"stream_heartbeat": "take it away, a quiet stream gets a comment every 15s; proxies need an idle timeout above that",
	"api_conns":        "take it away, the API and the streams share 8 connections; add gateways to have more",
	"recovery_rate": "take it away, after an outage at most 20,000 events a second go to a sink; an entry of limits in " +
		"the file of --config gives a sink a rate of its own",
}
