package testenv_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func client(t *testing.T, options *redis.Options) *redis.Client {
	t.Helper()
	options.MaxRetries = -1
	c := redis.NewClient(options)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRedisServerIsReachedByAddressURLAndSocket(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	fromURL, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string]*redis.Options{
		"Addr": {Addr: server.Addr()}, "URL": fromURL, "Socket": {Network: "unix", Addr: server.Socket()},
	} {
		if n, err := client(t, options).Incr(t.Context(), "seen").Result(); err != nil || n == 0 {
			t.Errorf("by %s: %d, %v", name, n, err)
		}
	}
	if n, err := client(t, fromURL).Get(t.Context(), "seen").Int(); err != nil || n != 3 {
		t.Errorf("the three ways lead to different servers: %d, %v", n, err)
	}
}

func TestRedisServerIsOfOneTest(t *testing.T) {
	t.Parallel()
	one, two := testenv.RedisServer(t), testenv.RedisServer(t)
	if one.PID() == two.PID() || one.Addr() == two.Addr() {
		t.Error("two calls gave one server")
	}
}

func TestRedisRestartsAtTheSameAddress(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.RedisServerWith(t,
		testenv.RedisConfig{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c := client(t, &redis.Options{Addr: server.Addr()})
	if err := c.Set(t.Context(), "kept", "42", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("killed, and still answers")
	}
	for _, how := range []string{"after Kill", "while running"} {
		if err := server.Restart(); err != nil {
			t.Fatalf("restart %s: %v", how, err)
		}
		fresh := client(t, &redis.Options{Addr: server.Addr()})
		if n, err := fresh.Get(t.Context(), "kept").Int(); err != nil || n != 42 {
			t.Errorf("restart %s: read %d, %v; want 42", how, n, err)
		}
	}
}

func TestRedisClusterServesEverySlot(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Cluster: true})
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}, MaxRedirects: -1})
	defer c.Close()
	for _, when := range []string{"after StartRedis", "after Restart"} {
		info, err := c.ClusterInfo(t.Context()).Result()
		if err != nil || !strings.Contains(info, "cluster_slots_ok:16384") || !strings.Contains(info, "cluster_state:ok") {
			t.Fatalf("%s: %v\n%s", when, err, info)
		}
		if err := c.Set(t.Context(), "{lane}a", "1", 0).Err(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if err := c.MGet(t.Context(), "a", "b").Err(); err == nil {
			t.Errorf("%s: two slots in one command are accepted, so this is no cluster", when)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRedisWithPasswordIsReady(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Args: []string{"--requirepass", "secret"}})
	if err := client(t, &redis.Options{Addr: server.Addr(), Password: "secret"}).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedisStartFailureShowsTheLog(t *testing.T) {
	t.Parallel()
	testenv.Installed(t, "redis-server")
	server, err := testenv.StartRedis(t.Context(), testenv.RedisConfig{Args: []string{"--maxmemory-policy", "wishful"}})
	if err == nil {
		t.Fatal("started with an impossible setting", server.Stop())
	}
	if !strings.Contains(err.Error(), "maxmemory-policy") {
		t.Errorf("the server's own words are missing: %v", err)
	}
}
