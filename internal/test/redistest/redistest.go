// Package redistest is what the tests of the sinks on Redis share: a client for what a sink cannot
// do, what makes a server or a user refuse a script, and a Cluster of two.
//
// Guaranteed: a fault that did not strike fails its test.
//
// Not guaranteed: anything of a sink that is not in redisscript.
package redistest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
)

// Server is a running Redis.
type Server interface {
	Addr() string
	Socket() string
	Dir() string
}

// Admin is a client with all rights.
func Admin(t testing.TB, server Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Do runs a command that must succeed.
func Do(t testing.TB, client *redis.Client, args ...any) any {
	t.Helper()
	reply, err := client.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// Relay makes the user relay, whose password is hunter2, with these rights.
func Relay(t testing.TB, admin *redis.Client, rights []any) {
	t.Helper()
	Do(t, admin, append([]any{"ACL", "SETUSER", "relay", "on", ">hunter2"}, rights...)...)
}

// EnableTLS has the server listen with TLS too, at the port that it returns, by a certificate that
// the client is to trust.
func EnableTLS(t testing.TB, admin *redis.Client, certFile, keyFile string) (port string) {
	t.Helper()
	port = sinktest.FreePort(t)
	Do(t, admin, "CONFIG", "SET", "tls-cert-file", certFile, "tls-key-file", keyFile, "tls-ca-cert-file", certFile,
		"tls-auth-clients", "no", "tls-port", port)
	return port
}

// Step changes the state of a server.
type Step func(t *testing.T, server Server, admin *redis.Client)

// Command is a step of one command.
func Command(args ...any) Step {
	return func(t *testing.T, _ Server, admin *redis.Client) { Do(t, admin, args...) }
}

// ACL changes the rights of the user relay.
func ACL(rules ...any) Step { return Command(append([]any{"ACL", "SETUSER", "relay"}, rules...)...) }

// Fault is a server or a user that cannot take the whole script.
type Fault struct {
	Name        string
	Spoil, Mend Step
	Says        string
}

// Faults are those that have nothing to do with what a sink sends.
func Faults() []Fault {
	return []Fault{
		{"out of memory", Command("CONFIG", "SET", "maxmemory", "1"), Command("CONFIG", "SET", "maxmemory", "0"), "OOM"},
		{"too few replicas", Command("CONFIG", "SET", "min-replicas-to-write", "1"),
			Command("CONFIG", "SET", "min-replicas-to-write", "0"), "NOREPLICAS"},
		{"read-only replica", Command("REPLICAOF", "127.0.0.1", "1"), Command("REPLICAOF", "NO", "ONE"), "READONLY"},
		{"failed snapshot", failSnapshot, Command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no"), "MISCONF"},
		{"no right to the script", ACL("-evalsha"), ACL("+evalsha"), "NOPERM"},
		{"password changed", changePassword, ACL("resetpass", ">hunter2"), "WRONGPASS"},
	}
}

// NoRight is a user who may not run a command that the script runs.
func NoRight(command string) Fault {
	return Fault{"no right to " + command, ACL("-" + command), ACL("+" + command), "can't run this command"}
}

// NoKeys is a user whose rights to keys are these, of which the memory is none.
func NoKeys(rules ...any) Fault {
	return Fault{"no right to the keys", ACL(append([]any{"resetkeys"}, rules...)...), ACL("~outbox:seen:*"), "NOPERM"}
}

func changePassword(t *testing.T, server Server, admin *redis.Client) {
	ACL("resetpass", ">other")(t, server, admin)
	Do(t, admin, "CLIENT", "KILL", "USER", "relay")
}

// failSnapshot makes the server refuse writes because its last snapshot failed: a directory is in
// the file's place.
func failSnapshot(t *testing.T, server Server, admin *redis.Client) {
	if err := os.MkdirAll(filepath.Join(server.Dir(), "dump.rdb", "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	Do(t, admin, "CONFIG", "SET", "save", "3600 1")
	Do(t, admin, "BGSAVE")
	sinktest.Eventually(t, func() bool {
		return strings.Contains(admin.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
}

// Refused publishes on a spoilt server, and again when it is mended. Nothing is left behind: not
// published, and not remembered as published either, or the next attempt would be refused as a copy
// and the event be lost. Remembers says that the sink refuses copies. It returns the ids that must
// have arrived at the destination.
func Refused(
	t *testing.T, f Fault, server Server, admin *redis.Client, s outbox.Able, destination string, remembers bool,
) []string {
	t.Helper()
	old := sinktest.Event(t, destination, 1)
	sinktest.Deliver(t, s, old)
	f.Spoil(t, server, admin)
	// A copy first: it writes nothing, so the server must still be asked about what follows it.
	batch := []outbox.Delivery{old, sinktest.Event(t, destination, 1), sinktest.Event(t, destination, 2)}
	all := sinktest.IDs(batch...)
	if !remembers {
		batch = batch[1:]
	}
	for range 2 {
		refused := 0
		for i, res := range s.Publish(t.Context(), batch) {
			if res == (outbox.Result{Duplicate: true}) && i == 0 || errors.Is(res.Err, outbox.ErrNotAttempted) {
				continue
			}
			sinktest.WantUnavailable(t, res, f.Says)
			if strings.Contains(res.Err.Error(), "hunter2") {
				t.Errorf("the error has the password: %v", res.Err)
			}
			refused++
		}
		if refused == 0 {
			t.Fatal("nothing was refused: the fault was not there")
		}
	}
	f.Mend(t, server, admin)
	// go-redis throws away a connection or two.
	sinktest.Eventually(t, func() bool { return s.Abilities().Ping(t.Context()) == nil })
	want := make([]outbox.Result, len(batch))
	want[0].Duplicate = remembers
	if got := s.Publish(t.Context(), batch); !slices.Equal(got, want) {
		t.Errorf("afterwards answered %+v, want %+v", got, want)
	}
	return all
}

// Cluster is two nodes with half of the slots each.
type Cluster struct {
	Servers [2]Server
	Admins  [2]*redis.Client
}

// Join makes one Cluster of two servers, each of which has all slots so far.
func Join(t *testing.T, a, b Server) Cluster {
	t.Helper()
	c := Cluster{[2]Server{a, b}, [2]*redis.Client{Admin(t, a), Admin(t, b)}}
	Do(t, c.Admins[1], "CLUSTER", "RESET", "HARD")
	Do(t, c.Admins[0], "CLUSTER", "DELSLOTSRANGE", 8192, 16383)
	Do(t, c.Admins[1], "CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
	Do(t, c.Admins[1], "CLUSTER", "SET-CONFIG-EPOCH", 2)
	host, port, _ := strings.Cut(a.Addr(), ":")
	_, bus, _ := strings.Cut(c.Admins[0].ClusterNodes(t.Context()).Val(), "@") // "id host:port@bus …"
	bus, _, _ = strings.Cut(strings.Fields(bus)[0], ",")
	Do(t, c.Admins[1], "CLUSTER", "MEET", host, port, bus)
	for _, admin := range c.Admins {
		sinktest.Eventually(t, func() bool {
			info := admin.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2") &&
				strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	return c
}

// Moved has the slot of a key change hands while a batch is published: a copy and a new event of
// that slot, and a new event elsewhere. The first two wait, and afterwards no copy gets through and
// no event is lost. Early says that the keys have moved already when the batch comes.
func (c Cluster) Moved(t *testing.T, s outbox.Sink, key string, early bool, batch []outbox.Delivery) {
	t.Helper()
	from, to, target := c.Admins[0], c.Admins[1], c.Servers[1]
	if from.Exists(t.Context(), key).Err() != nil { // MOVED
		from, to, target = c.Admins[1], c.Admins[0], c.Servers[0]
	}
	slot := Do(t, from, "CLUSTER", "KEYSLOT", key)
	fromID, toID := Do(t, from, "CLUSTER", "MYID"), Do(t, to, "CLUSTER", "MYID")
	Do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	Do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	migrate := func() {
		host, port, _ := strings.Cut(target.Addr(), ":")
		for _, key := range Do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any) {
			Do(t, from, "MIGRATE", host, port, key, 0, 5000)
		}
	}
	if early {
		migrate()
	}
	got := s.Publish(t.Context(), batch)
	sinktest.WantUnavailable(t, got[0], "ASK")
	sinktest.WantUnavailable(t, got[1], "ASK")
	if got[2] != (outbox.Result{}) {
		t.Errorf("what stays is answered %+v", got[2])
	}
	if !early {
		migrate()
	}
	for _, admin := range []*redis.Client{to, from} {
		Do(t, admin, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	sinktest.Eventually(t, func() bool {
		got = s.Publish(t.Context(), batch)
		return got[0].Err == nil && got[1].Err == nil // the client learns the slot's new home from the first MOVED
	})
	if want := []outbox.Result{{Duplicate: true}, {}, {Duplicate: true}}; !slices.Equal(got, want) {
		t.Errorf("after the move answered %+v, want %+v", got, want)
	}
}
