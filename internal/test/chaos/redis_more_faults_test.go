package chaos

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
)

var redisMoreFaults = []fault{
	// The others must not wait for it. Parsing and storing 25 MB takes a busy machine some seconds.
	{name: "redis-maxmemory-one-big-event", redis: []string{"--maxmemory", "24mb"}, heavy: true,
		maxAge: 30 * time.Second, strike: oneBigEvent("OOM")},
	{name: "redis-bulk-limit", redis: []string{"--proto-max-bulk-len", "1mb"}, heavy: true,
		maxAge: 30 * time.Second, strike: oneBigEvent("")},
	{name: "redis-query-buffer-limit", redis: []string{"--client-query-buffer-limit", "1mb"}, heavy: true,
		maxAge: 30 * time.Second, strike: oneBigEvent("")},
	{name: "redis-cluster-slot-migrating", strike: slotMigrating},
	{name: "redis-replica-promoted", strike: replicaPromoted},
	{name: "redis-tls", strike: tlsRefused},
	{name: "redis-acl-user", strike: aclUser},
	{name: "two-outboxes-on-one-redis", strike: twoOutboxes},
	{name: "windows-differ", strike: windowsDiffer},
}

// oneBigEvent writes one event that Redis does not take, by plain SQL, as the writer would refuse
// it. It becomes a dead letter with the reason.
func oneBigEvent(says string) func(*world) int {
	return func(w *world) int {
		w.produce()
		w.relay(nil, "--backoff-base", "200ms")
		w.relay(nil, "--backoff-base", "200ms")
		w.arrive(200)
		var id string
		err := w.pool.QueryRow(w.t.Context(), `INSERT INTO outbox_events (occurred_at, source_bc, aggregate_id, event_topic, payload)
			VALUES (now(), 'chaos', 'big', 'e', to_jsonb(repeat('x', 25 << 20))) RETURNING id::text`).Scan(&id)
		w.must(err)
		w.note(outboxtest.Written{ID: id, Outcome: outboxtest.Acknowledged, At: time.Now()})
		w.dead++
		w.eventually("it is a dead letter with the reason", `SELECT count(*) = 1 FROM job_dlq WHERE error_reason = 'DeliveryFailed' AND attempts = 5
			AND error_history::text LIKE '%sent alone%`+says+`%'`)
		w.arrive(200)
		return w.number(`SELECT count(*) FROM job_dlq`)
	}
}

// slotMigrating has a Cluster of three nodes, between which the slots of some lanes move while they
// are published to. A lane whose slot is moving waits.
func slotMigrating(w *world) (struck int) {
	var servers []*testenv.Redis
	var nodes []*redis.Client
	var addresses []string
	for range 3 {
		server := testenv.RedisServerWith(w.t,
			testenv.RedisConfig{Cluster: true, Args: []string{"--client-output-buffer-limit", "pubsub", "0", "0", "0"}})
		node := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), MaxRetries: -1})
		w.t.Cleanup(func() { _ = node.Close() })
		servers, nodes, addresses = append(servers, server), append(nodes, node), append(addresses, server.Addr())
	}
	const slots, each = 16384, 16384 / 3
	w.on(nodes[0], "CLUSTER", "DELSLOTSRANGE", each, slots-1)
	for n, node := range nodes[1:] {
		w.on(node, "CLUSTER", "RESET", "HARD")
		from := (n + 1) * each
		w.on(node, "CLUSTER", "ADDSLOTSRANGE", from, []int{2*each - 1, slots - 1}[n])
		w.on(node, "CLUSTER", "SET-CONFIG-EPOCH", n+2)
		bus, _, _ := strings.Cut(strings.Fields(after(nodes[0].ClusterNodes(w.t.Context()).Val(), "@"))[0], ",")
		host, port, _ := strings.Cut(servers[0].Addr(), ":")
		w.on(node, "CLUSTER", "MEET", host, port, bus)
	}
	for _, node := range nodes {
		eventually(w.t, "the cluster is whole", func() bool {
			info := node.ClusterInfo(w.t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") &&
				strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	// A node passes messages on to all others; those of one key come from one node at a time.
	w.heard = subscribe(w.t, servers[0])
	w.relaySink = "redis://" + strings.Join(addresses, ",")
	w.underway(0)
	for range 3 {
		w.arrive(200)
		for range 3 {
			struck += w.migrate(servers, nodes, w.rng.IntN(outbox.LaneCount))
		}
		w.healed(outage)
	}
	return struck
}

// migrate moves the slot of a lane to another node of the Cluster, and returns how often it was
// asked for meanwhile.
func (w *world) migrate(servers []*testenv.Redis, nodes []*redis.Client, lane int) int {
	w.t.Helper()
	slot := w.on(nodes[0], "CLUSTER", "KEYSLOT", fmt.Sprintf("outbox:seen:{%d}", lane)).(int64)
	owner := func() int {
		ranges, err := nodes[0].ClusterSlots(w.t.Context()).Result() //nolint:staticcheck // Redis 6.2 has no SHARDS
		w.must(err)
		for _, r := range ranges {
			if int64(r.Start) <= slot && slot <= int64(r.End) {
				return slices.IndexFunc(servers, func(s *testenv.Redis) bool { return s.Addr() == r.Nodes[0].Addr })
			}
		}
		return -1
	}
	from := owner()
	to := (from + 1 + w.rng.IntN(len(nodes)-1)) % len(nodes)
	source, target := nodes[from], nodes[to]
	asked := func() int {
		return numberAfter(source.Info(w.t.Context(), "errorstats").Val(), "errorstat_ASK:count=")
	}
	before, sourceID, targetID := asked(), w.on(source, "CLUSTER", "MYID"), w.on(target, "CLUSTER", "MYID")
	w.on(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", sourceID)
	w.on(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetID)
	w.pause(100*time.Millisecond, time.Second)
	host, port, _ := strings.Cut(servers[to].Addr(), ":")
	for {
		keys := w.on(source, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
		if len(keys) == 0 {
			break
		}
		w.on(source, append([]any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}, keys...)...)
	}
	for _, n := range []int{to, from} {
		w.on(nodes[n], "CLUSTER", "SETSLOT", slot, "NODE", targetID)
	}
	eventually(w.t, "the nodes know", func() bool { return owner() == to })
	return asked() - before
}

// replicaPromoted moves all clients from a server to its replica, as Sentinel and managed services
// do when they replace one: the old one takes nothing more, the new one has all that the old one
// had. (Without the second, what the replica lacks may arrive twice.)
//
// The subscriber is connected to the replica, to which PUBLISH is passed on like a write.
func replicaPromoted(w *world) (struck int) {
	replica := testenv.RedisServerWith(w.t,
		testenv.RedisConfig{Args: []string{"--client-output-buffer-limit", "pubsub", "0", "0", "0"}})
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: replica.Socket(), MaxRetries: -1})
	w.t.Cleanup(func() { _ = admin.Close() })
	w.command("CONFIG", "SET", "repl-diskless-sync-delay", "0") // 5 s, waiting for more replicas
	host, port, _ := strings.Cut(w.redis.Addr(), ":")
	w.on(admin, "REPLICAOF", host, port)
	replication := func(client *redis.Client) string { return client.Info(w.t.Context(), "replication").Val() }
	eventually(w.t, "the replica is linked",
		func() bool { return strings.Contains(replication(admin), "master_link_status:up") })
	w.heard = subscribe(w.t, replica)

	p := w.proxied()
	w.underway(300)
	// First the clients arrive at a replica that is none of theirs to write to.
	p.Stop()
	eventually(w.t, "the replica has all", func() bool {
		return numberAfter(replication(admin), "slave_repl_offset:") == numberAfter(replication(w.admin),
			"master_repl_offset:")
	})
	p.Upstream = replica.Addr()
	w.must(p.Start())
	eventually(w.t, "the replica refuses", func() bool {
		struck = numberAfter(admin.Info(w.t.Context(), "errorstats").Val(), "errorstat_READONLY:count=")
		return struck > 0
	})
	w.pause(0, time.Second)
	w.on(admin, "REPLICAOF", "NO", "ONE")
	w.healed(outage)
	w.arrive(200)
	return struck
}

// tlsRefused has the relays reach Redis through TLS with a private authority. Redis gets a
// certificate of somebody else, which they refuse, and then a new one of that authority.
func tlsRefused(w *world) int {
	dir := w.redis.Dir() // the server's user can read there
	mine, other := newAuthority(w.t, dir, "mine"), newAuthority(w.t, dir, "other")
	_, port, _ := net.SplitHostPort(freeAddress(w.t))
	use := func(a *authority, more ...any) {
		cert, key := a.issue(w.t, dir)
		w.command(append([]any{"CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", a.file,
			"tls-auth-clients", "no"}, more...)...)
		w.command("CLIENT", "KILL", "TYPE", "normal")
	}
	use(mine, "tls-port", port)
	w.relaySink = "rediss://127.0.0.1:" + port
	env := []string{"SSL_CERT_FILE=" + mine.file}
	w.produce()
	w.relay(env)
	w.relay(env)
	for range 3 {
		w.arrive(200)
		before := w.said("certificate signed by unknown authority")
		use(other)
		w.pause(500*time.Millisecond, 2*time.Second)
		use(mine)
		w.healed(outage)
		if w.said("certificate signed by unknown authority") == before {
			w.t.Error("no relay has refused the certificate")
		}
	}
	return w.said("certificate signed by unknown authority")
}

// authority issues certificates for 127.0.0.1.
type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T, dir, name string) *authority {
	a := &authority{}
	a.file, _, a.cert, a.key = a.sign(t, dir,
		&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(t *testing.T, dir string) (certFile, keyFile string) {
	certFile, keyFile, _, _ = a.sign(t, dir,
		&x509.Certificate{Subject: pkix.Name{CommonName: "redis"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return certFile, keyFile
}

func (a *authority) sign(
	t *testing.T, dir string, template *x509.Certificate,
) (certFile, keyFile string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	a.n++
	template.SerialNumber, template.NotAfter = big.NewInt(a.n), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	cert, err = x509.ParseCertificate(der)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write := func(suffix, kind string, der []byte) string {
		path := filepath.Join(dir, fmt.Sprint(parent.Subject.CommonName, a.n, suffix))
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644))
		return path
	}
	return write(".pem", "CERTIFICATE", der), write(".key", "PRIVATE KEY", secret), cert, key
}

// aclUser has the relays be a user with the rights that docs/reference/sinks.md lists and no
// others, one of which is taken from it and given back.
func aclUser(w *world) int {
	w.command("ACL", "SETUSER", "relay", "on", ">hunter2", "resetkeys", "~outbox:seen:*", "resetchannels", "&order.*",
		"-@all",
		"+evalsha", "+eval", "+time", "+smismember", "+exists", "+pttl", "+sadd", "+srem", "+pexpireat", "+publish", "+ping")
	w.relaySink = "redis://relay:hunter2@" + w.redis.Addr()
	return refusing("NOPERM", []any{"ACL", "SETUSER", "relay", "-evalsha"},
		[]any{"ACL", "SETUSER", "relay", "+evalsha"})(w)
}

// twoOutboxes has two databases with the same event ids, keys and topics (a copy for staging,
// tenants made from one template), one relay each, and one Redis. Each event arrives from both.
func twoOutboxes(w *world) (struck int) {
	const events = 500
	insert := fmt.Sprintf(`INSERT INTO outbox_events (id, occurred_at, source_bc, aggregate_id, event_topic, payload)
		SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, now(), 'chaos', 'k' || n %% 20, 'e', '{}' FROM generate_series(1, %d) n`, events)
	url := testenv.Database(w.t)
	w.must(pgmigrations.Up(w.t.Context(), url, pgmigrations.Sets...))
	second, err := pgxpool.New(w.t.Context(), url)
	w.must(err)
	w.t.Cleanup(second.Close)
	w.exec(insert)
	if _, err := second.Exec(w.t.Context(), insert); err != nil {
		w.t.Fatal(err)
	}
	for n := range events {
		w.note(outboxtest.Written{ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", n+1), Key: fmt.Sprint("k", (n+1)%20),
			Order: int64(n), Outcome: outboxtest.Acknowledged, At: time.Now()})
	}
	w.relay(nil)
	w.arrive(events)
	w.relayDatabase = url
	w.relay(nil)
	eventually(w.t, "the second outbox is delivered", func() bool {
		var left int
		err := second.QueryRow(w.t.Context(), `SELECT count(*) FROM outbox_events WHERE status <> 'SENT'`).Scan(&left)
		return err == nil && left == 0
	})
	w.heard.quiet(300 * time.Millisecond)
	// The second one's are the later of the two, and no copies of the first one's.
	w.heard.mu.Lock()
	defer w.heard.mu.Unlock()
	seen := map[string]bool{}
	w.heard.received = slices.DeleteFunc(w.heard.received, func(r outboxtest.Received) bool {
		again := seen[r.ID]
		seen[r.ID] = true
		if again {
			struck++
		}
		return again
	})
	if struck != events {
		w.t.Errorf("%d events of the second outbox arrived, want %d", struck, events)
	}
	return struck
}

// windowsDiffer kills relays between publish and settle, each with another window than the one that
// publishes their events again.
func windowsDiffer(w *world) int {
	w.produce()
	for n, window := range []string{"1m", "10m", "3h"} {
		doomed := w.relay([]string{"OUTBOX_FAULT=after-publish:" + itoa(10+w.rng.IntN(30)) + ":kill"}, "--dedup-window",
			window)
		if n == 0 {
			w.arrive(1)
			w.relay(nil, "--dedup-window", "2m")
		}
		doomed.killed(w.t)
		w.healed(takeOver)
	}
	if w.said("duplicates_refused") == 0 {
		w.t.Error("no copy was refused: were there any?")
	}
	return w.said("struck")
}

// on sends one command to a server that is not the world's own.
func (w *world) on(client *redis.Client, args ...any) any {
	w.t.Helper()
	reply, err := client.Do(w.t.Context(), args...).Result()
	if err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func after(text, sep string) string {
	_, rest, _ := strings.Cut(text, sep)
	return rest
}
