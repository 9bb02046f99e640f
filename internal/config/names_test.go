package config

import (
	"slices"
	"testing"
)

func TestMisspeltVariables(t *testing.T) {
	t.Parallel()
	for name, right := range map[string]string{
		"OUTBOX_DATABSE_URL": "OUTBOX_DATABASE_URL", "OUTBOX_DATABASE": "OUTBOX_DATABASE_URL",
		"OUTBOX_SNIK": "OUTBOX_SINK", "OUTBOX_ROUTS": "OUTBOX_ROUTES",
		"OUTBOX_BACTH": "OUTBOX_BATCH", "OUTBOX_POLLMAX": "OUTBOX_POLL_MAX", "OUTBOX_TOKENS": "OUTBOX_TOKEN",
		"OUTBOX_CONFG": "OUTBOX_CONFIG", "OUTBOX_STREAM_LIMITS": "OUTBOX_STREAM_LIMIT",
	} {
		c, err := load(t, "", []string{name + "=hunter2"})
		if err != nil {
			t.Fatal(err)
		}
		wantProblems(t, c.Check(0), name+" is not a setting: did you mean "+right+"?")
	}
	// Empty, not ours, read by a sink, set by Kubernetes for Services called outbox and outbox-relay: nothing of that
	// stops a daemon.
	c, err := load(t, "", []string{
		"OUTBOX_BACTH=", "OUTBOX_PATH=x", "OUTBOX_VERSION_OF_THE_SHOP=7", "OUTBOX_LINES_KEY=x", "DATABSE_URL=x",
		"outbox_bacth=1",
		"OUTBOX_SERVICE_HOST=10.0.0.1", "OUTBOX_SERVICE_PORT=9464", "OUTBOX_SERVICE_PORT_METRICS=9464",
		"OUTBOX_PORT=tcp://10.0.0.1:9464", "OUTBOX_PORT_9464_TCP=tcp://10.0.0.1:9464",
		"OUTBOX_PORT_9464_TCP_PROTO=tcp", "OUTBOX_PORT_9464_TCP_PORT=9464", "OUTBOX_PORT_9464_TCP_ADDR=10.0.0.1",
		"OUTBOX_RELAY_SERVICE_HOST=10.0.0.2", "OUTBOX_RELAY_PORT=tcp://10.0.0.2:80",
		"OUTBOX_RELAY_PORT_80_TCP_ADDR=10.0.0.2",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(0); err != nil {
		t.Error(err)
	}
	if want := []string{"OUTBOX_PATH", "OUTBOX_VERSION_OF_THE_SHOP"}; !slices.Equal(c.Ignored(), want) {
		t.Errorf("got %v to warn of, want %v", c.Ignored(), want)
	}
}

func TestSlips(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"batch", "batch", 0}, {"bach", "batch", 1}, {"batchh", "batch", 1}, {"bacth", "batch", 1},
		{"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if got := slips(f.a, f.b); got != f.n {
			t.Errorf("%q, %q: got %d, want %d", f.a, f.b, got, f.n)
		}
	}
}

// No two settings are so near that one could be taken for a misspelling of the other: a right name is never a problem.
func TestRightNamesAreNoStrangers(t *testing.T) {
	t.Parallel()
	_, known := knownNames()
	for name, right := range known {
		var problems Error
		ignored := strangers(map[string]string{name: "x"}, &problems)
		if len(ignored) > 0 || name == right && len(problems.Problems) > 0 {
			t.Errorf("%s: ignored %v, problems %v", name, ignored, problems.Problems)
		}
	}
}
