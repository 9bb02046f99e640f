package config

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// A variable that begins as ours do and is no setting is told of, and stops nobody: it may be
// somebody else's. One that is empty, or set by Kubernetes for Services called outbox and
// outbox-relay is not even told of.
func TestVariablesThatAreNoSettings(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", []string{
		"OUTBOX_BACTH=", "OUTBOX_PATH=x", "OUTBOX_DATABSE_URL=x", "DATABSE_URL=x",
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
	if want := []string{"OUTBOX_DATABSE_URL", "OUTBOX_PATH"}; !slices.Equal(c.Ignored(), want) {
		t.Errorf("got %v to warn of, want %v", c.Ignored(), want)
	}
}

func TestSettingsAreNoStrangers(t *testing.T) {
	t.Parallel()
	for _, fs := range []*pflag.FlagSet{All(), ServeFlags(), Client()} {
		fs.VisitAll(func(f *pflag.Flag) {
			for _, name := range variables(f.Name) {
				c, err := load(t, "", []string{name + "=/dev/null"})
				if err != nil || len(c.Ignored()) > 0 {
					t.Errorf("ignored %v, error %v", c.Ignored(), err)
				}
			}
		})
	}
}
