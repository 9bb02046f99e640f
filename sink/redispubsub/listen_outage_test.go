package redispubsub

import (
	"context"
	"crypto/tls"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The server dies and comes back. Who listened is told, who comes meanwhile does not wait, and all
// hear again without doing anything.
func TestListenerRestart(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	var log logged
	l := startListener(t, server.URL(), ListenerConfig{Logger: log.logger()})
	var before, during, gone ear
	hear(t, l, "a", &before)
	stopGone := hear(t, l, "gone", &gone)
	say(t, admin, "a", "1")
	before.wants(t, "1")

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	before.wants(t, "1", wasLost)
	if l.State().Up || l.State().Err == nil {
		t.Errorf("it is up: %+v", l.State())
	}
	stopGone()
	waits, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	if ok, _ := l.Subscribe(waits, "b", &during); ok || waits.Err() != nil {
		t.Errorf("Subscribe while Redis is down: %v, %v", ok, waits.Err())
	}
	time.Sleep(200 * time.Millisecond) // several attempts to connect
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	before.wants(t, "1", wasLost, wasResumed)
	during.wants(t, wasResumed)
	eventually(t, func() bool { return admin.Ping(t.Context()).Err() == nil })
	say(t, admin, "a", "2")
	say(t, admin, "b", "3")
	before.wants(t, "1", wasLost, wasResumed, "2")
	during.wants(t, wasResumed, "3")
	gone.wants(t, wasLost)
	if s := l.State(); !s.Up || s.Reconnects != 1 || s.Channels != 2 || l.messages.Load() != 3 || s.Err != nil {
		t.Errorf("%+v", s)
	}
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "do not arrive") ||
		!strings.Contains(text, "arrive again") {
		t.Errorf("logged: %s", text)
	}
}

// Redis hangs up on a subscriber, as it does when too much piles up for it.
func TestListenerIsDisconnected(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	l := startListener(t, server.URL(), ListenerConfig{})
	var e ear
	hear(t, l, "c", &e)
	var want []string
	for range 3 {
		do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
		want = append(want, wasLost, wasResumed)
		e.wants(t, want...)
	}
	say(t, admin, "c", "m")
	e.wants(t, append(want, "m")...)
}

// The server is there but says nothing: the connection is half open, as far as anybody can tell. A
// quiet one that answers is none.
func TestListenerHalfOpen(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	const dead = 1500 * time.Millisecond
	l := startListener(t, server.URL(), ListenerConfig{PingEvery: 100 * time.Millisecond, DeadAfter: dead})
	var e ear
	hear(t, l, "c", &e)
	time.Sleep(dead + dead/2)
	e.wants(t)

	began := time.Now()
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	e.wants(t, wasLost)
	if took := time.Since(began); took < dead/2 {
		t.Errorf("noticed after %s, DeadAfter is %s", took, dead)
	}
	waits, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	ok, stop := l.Subscribe(waits, "c", &ear{})
	if ok || waits.Err() != nil {
		t.Errorf("Subscribe: %v, %v", ok, waits.Err())
	}
	stop()
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	e.wants(t, wasLost, wasResumed)
	say(t, admin, "c", "m")
	e.wants(t, wasLost, wasResumed, "m")
}

// Before Run there is nothing to wait for but ctx, and after it nothing at all.
func TestListenerWithoutRun(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	l, err := newListener(server.URL(), ListenerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var e ear
	if ok, _ := l.Subscribe(ctx, "c", &e); ok || ctx.Err() == nil {
		t.Errorf("before Run: %v, %v", ok, ctx.Err())
	}
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(running) }()
	e.wants(t, wasResumed)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	e.wants(t, wasResumed, wasLost)
	if ok, _ := l.Subscribe(t.Context(), "c", &ear{}); ok || l.State().Up {
		t.Error("it is up after Run")
	}
}

// Of several hosts one that answers is found. A wrong password is tried until it is right, and
// shown to nobody.
func TestListenerPassword(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	do(t, admin, "CONFIG", "SET", "requirepass", "right")
	var log logged
	l := startListener(t, "redis://:hunter2@127.0.0.1:1,"+server.Addr(), ListenerConfig{Logger: log.logger()})
	none := startListener(t, server.URL(), ListenerConfig{Logger: log.logger()})
	parrot := startListener(t, "redis://user:hunter@"+startParrot(t), ListenerConfig{Logger: log.logger()})
	for listener, want := range map[*listener]string{l: "WRONGPASS", none: "NOAUTH", parrot: "contains the password"} {
		eventually(t, func() bool {
			err := listener.State().Err
			return err != nil && strings.Contains(err.Error(), want)
		})
		if listener.State().Up {
			t.Errorf("up in spite of %v", listener.State().Err)
		}
	}
	var e ear
	if ok, _ := l.Subscribe(t.Context(), "c", &e); ok {
		t.Error("acknowledged with a wrong password")
	}
	do(t, admin, "CONFIG", "SET", "requirepass", "hunter2")
	e.wants(t, wasResumed)
	if text := log.String(); strings.Contains(text, "hunter") || strings.Count(text, "do not arrive") != 3 {
		t.Errorf("logged: %s", text)
	}
}

// The name in the certificate is checked for the host that is dialled, not for the first of the
// URL.
func TestListenerTLS(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	ca, cert, key := sinktest.Certificate(t, server.Dir())
	port := redistest.EnableTLS(t, admin, cert, key)
	stranger := startListener(t, "rediss://127.0.0.1:"+port, ListenerConfig{})
	eventually(t, func() bool {
		err := stranger.State().Err
		return err != nil && strings.Contains(err.Error(), "certificate")
	})
	var e ear
	l := startListener(t, "rediss://localhost:1,127.0.0.1:"+port, ListenerConfig{TLS: &tls.Config{RootCAs: ca}})
	eventually(t, func() bool { return l.State().Up })
	hear(t, l, "c", &e)
	say(t, admin, "c", "m")
	e.wants(t, "m")
}
