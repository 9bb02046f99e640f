package condition

import "testing"

func TestHeadline(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]string{
		"no relay serves outbox_events, where 2 events wait, the oldest for 24.9s": "no relay serves outbox_events",
		"events of outbox_events are late: 3 events wait, the oldest for 1m":       "events of outbox_events are late",
		"two versions are connected; upgrade one":                                  "two versions are connected; upgrade one",
		"sink default is down for 4m, as web-1, process 18 says; nothing is lost: ping Redis: dial tcp 10.0.0.5:6379: " +
			"connect: connection refused": "sink default is down for 4m, as web-1, process 18 says; nothing is lost",
		"in outbox_events 1 event of 1 key waits behind one that fails; the first is 01a218c6-da30-7229-b9ef-ce0d71ad504b " +
			"of key INV-7 (1 failure): publish: ERR": "in outbox_events 1 event of 1 key waits behind one that fails",
		"autovacuum: a sentence of more than a hundred characters that says nothing else behind its first colon at all": "" +
			"autovacuum: a sentence of more than a hundred characters that says nothing else behind its first colon at all",
	} {
		if got := headline(says); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
