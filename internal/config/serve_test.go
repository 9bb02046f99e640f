package config

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestServeSettings(t *testing.T) {
	c, err := load(t, "stream_limit: 200\ncrawlers: [demo]\n",
		[]string{"OUTBOX_PARTS=gateway",
			"OUTBOX_CORS_ORIGIN=https://a.example,http://localhost:3000"},
		"--http", "[::1]:80", "--auth", "none")
	if err != nil {
		t.Fatal(err)
	}
	s := c.Serve
	if s.StreamLimitTenant() != 50 || len(s.Crawlers) != 1 || s.Has("relay") || s.Has("worker") || !s.Has("gateway") ||
		len(s.Origins) != 2 {
		t.Errorf("got %+v", s)
	}
	// Of the relay's settings and Redis's address a process needs what its parts need.
	for _, f := range []struct {
		args string
		says []string
	}{
		{"", []string{"the database is not set", "no sink is set", "batch is 0", "poll-max"}},
		{"--parts=gateway,worker", []string{"the database is not set"}},
		{"--parts=gateway --sink x:y", []string{"the database is not set", "no sink for URLs of x"}},
		{"--parts=worker", []string{"the database is not set"}},
		{"--parts=", []string{"the database is not set", "nothing to serve"}},
	} {
		c, err := load(t, "", nil, append(strings.Fields(f.args), "--batch", "0", "--poll-max", "0s")...)
		if err != nil {
			t.Fatal(err)
		}
		wantProblems(t, c.Check(Parts), f.says...)
	}
}

func TestServeProblems(t *testing.T) {
	urls := []string{"OUTBOX_DATABASE_URL=postgres://h/d", "OUTBOX_SINK=redis://h"}
	for _, f := range []struct {
		args string
		says []string
	}{
		{"--auth none", nil},
		{"--auth none --http localhost:8080", nil},
		{"--auth none --http 0.0.0.0:8080", []string{"other machines can reach 0.0.0.0:8080"}},
		{"--auth none --http :8080", []string{"other machines can reach :8080"}},
		{"--auth none --http 10.0.0.1:8080 --parts=relay,worker", nil}, // nobody listens there
		{"--auth none --cors-origin *", nil},
		{"--cors-origin *", []string{"cors-origin"}},
		{"--cors-origin https://u:hunter2@shop.example", []string{"cors-origin: the value (not shown"}},
		{"--cors-origin https://shop.example/ --cors-origin shop.example --cors-origin https://*.example",
			[]string{`"https://shop.example/"`, `"shop.example"`, `"https://*.example"`}},
		{"--public-url https://api.example.com/outbox", nil},
		{"--auth none --public-url https://api.example.com",
			[]string{"auth is none, and public-url is an address that other machines reach"}},
		{"--auth none --public-url https://api.example.com --parts=relay,worker", nil},
		{"--auth none --public-url http://localhost:8080", nil},
		{"--public-url api.example.com", []string{"public-url is no address"}},
		{"--public-url https://u:hunter2@h", []string{"public-url is no address"}},
		{"--public-url https://h/?token=hunter2", []string{"not shown"}},
		{"--http 8080 --auth basic --listen 9464", []string{`http is "8080"`, `auth is "basic"`, `listen is "9464"`}},
		{"--parts=gateway,worker --listen 9464", []string{`listen is "9464"`}},
		{"--lease-ttl 1ms --stream-limit 0 --parts relay,gatewy",
			[]string{"lease-ttl", "stream-limit is", `there is no part "gatewy"`}},
		{"--parts=worker --lease-ttl 1ms", []string{"lease-ttl"}},
		{"--destination crawl_outbox={topic}", []string{`destination of crawl_outbox is "{topic}": the gateway subscribes`}},
		{"--destination crawl_outbox=run:{type}:{key}", []string{"the gateway subscribes"}},
		{"--destination outbox_events={type}.{topic}",
			[]string{`destination of outbox_events is "{type}.{topic}": the gateway subscribes`}},
		{"--destination outbox_events={type}.{topic} --parts=relay,worker", nil},
		{"--parts=gateway,worker --destination crawl_outbx=x", []string{"no layout for table crawl_outbx"}},
		{"--destination event_outbox={type}.{topic}", nil}, // nobody subscribes to these
	} {
		c, err := load(t, "", urls, strings.Fields(f.args)...)
		if err != nil {
			t.Fatal(err)
		}
		if err = c.Check(Parts); len(f.says) > 0 {
			wantProblems(t, err, f.says...)
		} else if err != nil {
			t.Errorf("%s: %v", f.args, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is shown: %v", err)
		}
	}
}

func TestChannels(t *testing.T) {
	run := uuid.MustParse("00000000-0000-0000-0000-000000000001")
	for _, f := range []struct{ args, run, topic string }{
		{"", "run:" + run.String(), "order.placed"},
		{"--destination crawl_outbox={source}/{tenant}/{key},outbox_events={tenant}.{topic}",
			"crawl_outbox/shop/" + run.String(), "shop.order.placed"},
	} {
		c, err := load(t, "", nil, strings.Fields(f.args)...)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := c.RunChannel()
		if err != nil {
			t.Fatal(err)
		}
		topics, err := c.TopicChannel()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := runs("shop", run); err != nil || got != f.run {
			t.Errorf("got %q, error %v, want %q", got, err, f.run)
		}
		if got, err := topics("shop", "order.placed"); err != nil || got != f.topic {
			t.Errorf("got %q, error %v, want %q", got, err, f.topic)
		}
	}
}

func TestReservedChannels(t *testing.T) {
	const run, other = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000A"
	for _, f := range []struct {
		args     string
		reserved []string
		free     []string
	}{
		{"", []string{"run:" + run}, []string{"run:" + other, "run:" + run + "\n", "run:x", "run:", "xrun:" + run, run,
			"order.placed"}},
		{"--destination crawl_outbox=a.{tenant}/{key}", []string{"a.shop/" + run, "a.a/b/" + run},
			[]string{"a./" + run, "abshop/" + run, "run:" + run}},
		{"--destination crawl_outbox={source}:{key}", []string{"crawl_outbox:" + run}, []string{"x:" + run}},
	} {
		c, err := load(t, "", nil, strings.Fields(f.args)...)
		if err != nil {
			t.Fatal(err)
		}
		is := c.ReservedChannels()
		for _, name := range f.reserved {
			if !is(name) {
				t.Errorf("%q: %q is not reserved", f.args, name)
			}
		}
		for _, name := range f.free {
			if is(name) {
				t.Errorf("%q: %q is reserved", f.args, name)
			}
		}
	}
	c, err := load(t, "", nil, "--destination", "crawl_outbox={topic}")
	if err != nil {
		t.Fatal(err)
	}
	if c.ReservedChannels() != nil {
		t.Error("channels are reserved although no run's can be known")
	}
	if !c.OwnRunChannels("crawl_outbox", "{topic}") || c.OwnRunChannels("outbox_events", "x") {
		t.Error("whose channels they are")
	}
}

func TestClientSettings(t *testing.T) {
	for server, says := range map[string]string{
		"http://127.0.0.1:8080": "", "https://h/prefix/": "", "": "server is no address",
		"127.0.0.1:8080": "server is no address", "ftp://h": "server is no address",
		"http://u:hunter2@h": "without user", "http://h/?token=hunter2": "without user",
		"http://h:hunter2": "server is no address",
	} {
		c, err := load(t, "", []string{"OUTBOX_TOKEN=obx_x"}, "--server", server)
		if err != nil {
			t.Fatal(err)
		}
		if err = c.Check(Asking); says != "" {
			wantProblems(t, err, says)
		} else if err != nil || c.Token != "obx_x" {
			t.Errorf("%s: got token %q, error %v", server, c.Token, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is shown: %v", err)
		}
	}
	c, err := load(t, "", []string{"OUTBOX_TOKEN=obx_hunter2\nX: y"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(Asking); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}
