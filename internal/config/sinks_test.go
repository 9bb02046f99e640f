package config

import (
	"fmt"
	"strings"
	"testing"
)

// Every form in which sinks may be written.
func TestSinksAreWritten(t *testing.T) {
	const want = "map[audit:lines:/tmp/a default:redis://u:p@a,b/0?db=1]"
	for name, f := range map[string]struct {
		file    string
		environ string
		args    []string
	}{
		"flags":    {args: []string{"--sink", "redis://u:p@a,b/0?db=1", "--sink", "audit=lines:/tmp/a"}},
		"variable": {environ: "OUTBOX_SINK=redis://u:p@a,b/0?db=1  audit=lines:/tmp/a"},
		"keys":     {file: "sink:\n  default: redis://u:p@a,b/0?db=1\n  audit: lines:/tmp/a\n"},
		"list":     {file: "sink: ['redis://u:p@a,b/0?db=1', 'audit=lines:/tmp/a']\n"},
		"the last wins, as a whole": {file: "sink: {third: 'redis://c'}\n", environ: "OUTBOX_SINK=fourth=redis://d",
			args: []string{"--sink", "default=redis://u:p@a,b/0?db=1", "--sink", "audit=lines:/tmp/a"}},
	} {
		c, err := load(t, f.file, []string{f.environ}, f.args...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Sink); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	c, err := load(t, "sink: redis://h\n", nil)
	if err != nil || fmt.Sprint(c.Sink) != "map[default:redis://h]" {
		t.Errorf("got %v, error %v", c.Sink, err)
	}
}

// What is wrong with the sinks is a sentence that says which, and shows no URL.
func TestSinkProblems(t *testing.T) {
	for _, f := range []struct {
		name, file string
		environ    []string
		args       string
		needs      Need
		says       []string
	}{
		{"one", "", nil, "--sink redis://h", Parts, nil},
		{"none", "", nil, "", Parts, []string{"no sink is set, so events have nowhere to go: give --sink, or set " +
			"OUTBOX_SINK or sink in the file of --config:\n    redis://host:6379\n    memory:"}},
		{"none, but a platform has one", "", []string{"REDIS_URL=redis://u:hunter2@h"}, "", Parts,
			[]string{"REDIS_URL is set: set OUTBOX_SINK to it"}},
		{"one, and a platform has another", "", []string{"REDIS_URL=redis://u:hunter2@h"},
			"--sink lines:x --parts=relay,worker",
			Parts, nil},
		{"unknown", "", nil, "--sink kafka://u:hunter2@h", Parts,
			[]string{"sink default: there is no sink for URLs of kafka: want one of lines:, memory:, redis:, rediss:"}},
		{"no URL", "", nil, "--sink hunter2", Parts, []string{"sink default: the URL has no scheme (not shown"}},
		{"the driver's own", "", nil, "--sink redis://u:hunter2@bad", Parts, []string{"sink default: the URL is bad"}},
		{"all of them", "", nil, "--sink redis://bad --sink audit=redis://bad", Parts,
			[]string{"sink default: the URL is bad", "sink audit: the URL is bad"}},
		{"twice", "", nil, "--sink redis://a --sink redis://b", Parts,
			[]string{"--sink: two sinks are called default"}},
		{"a name that is none", "", nil, "--sink Audit=redis://a", Parts,
			[]string{`--sink: "Audit" is no name of a sink`}},
		{"no text", "sink: {a: [hunter2]}\n", nil, "", Parts,
			[]string{`sink: "a": want text, and not a list`}},
		{"a number", "sink: 6379\n", nil, "", Parts, []string{"sink default: the URL has no scheme"}},

		{"routes", "", nil, "--sink redis://a --sink audit=lines:x --routes outbox_events=audit", Parts, nil},
		{"an unknown sink", "", nil, "--sink redis://a --routes outbox_events=audti", Parts,
			[]string{`routes: outbox_events goes to "audti", and there is no sink of that name: it is one of default`}},
		{"an unknown table", "", nil, "--sink redis://a --routes orders=default", Parts,
			[]string{"routes: there is no layout for table orders"}},
		{"no default", "", nil,
			"--sink a=redis://a --sink b=redis://b --routes crawl_outbox=a --table outbox_events,crawl_outbox", Parts,
			[]string{"routes: outbox_events goes to no sink: there are a, b, and none of them is called default: give " +
				"--routes outbox_events=NAME"}},
		{"no default, and each has a route", "", nil,
			"--sink a=redis://a --sink b=redis://b --routes crawl_outbox=a,outbox_events=b,event_outbox=b", Parts, nil},

		{"within the process", "", nil, "--sink memory:", Parts, nil},
		{"without relay", "", nil, "--sink memory: --parts=gateway,worker", Parts, []string{"serve both"}},
		{"without gateway", "", nil, "--sink memory: --parts=relay,worker", Parts, []string{"gateway and relay both"}},
		{"relay alone", "sink: 'memory:'\n", nil, "", Database | Publishing | Serving | Retaining,
			[]string{"run outbox serve"}},
		{"beside another", "", nil, "--sink redis://h --sink live=memory: --routes crawl_outbox=live", Parts, nil},
		{"tail within the process", "", nil, "--sink memory:", Tailing, []string{"/v1/stream?topics="}},
		{"tail of several", "", nil, "--sink a=redis://a --sink b=redis://b", Tailing,
			[]string{"give --sink URL of that one"}},
		{"tail", "", nil, "--sink redis://a", Tailing, nil},
		{"nobody can listen", "", nil, "--sink lines:x", Tailing, []string{"cannot be listened to"}},
		{"a gateway cannot either", "", nil, "--sink lines:x", Parts,
			[]string{"sink default (lines:x) cannot be listened to, and the gateway hears there"}},
		{"a gateway alone", "", nil, "--sink redis://h --parts=gateway,worker", Parts, nil},
		{"a command without", "sink: 'memory:'\n", nil, "", Database, nil},
	} {
		c, err := load(t, f.file, append(f.environ, "OUTBOX_DATABASE_URL=postgres://h/d"), strings.Fields(f.args)...)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Check(f.needs)
		if len(f.says) == 0 {
			if err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
			continue
		}
		t.Log(f.name)
		wantProblems(t, err, f.says...)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the password is shown: %v", f.name, err)
		}
	}
}

func TestSinkOf(t *testing.T) {
	c, err := load(t, "sink:\n  default: redis://a\n  audit: lines:x\nroutes: [outbox_events=audit]\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{"outbox_events": "sink audit (lines:x)",
		"crawl_outbox": "sink default (redis://a)", "": "sink default (redis://a)"} {
		if s, err := c.SinkOf(table); err != nil || s.String() != want {
			t.Errorf("%s: got %v, error %v, want %s", table, s, err, want)
		}
	}
}
