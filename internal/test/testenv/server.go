package testenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Time limits of a single step. They are far above what a loaded 2-core machine was seen to need
// (initdb 3 s, start 1 s, RabbitMQ's 70 s, stop 0.2 s): reaching one means that something hangs.
const (
	startLimit = 3 * time.Minute
	stopLimit  = 30 * time.Second
)

// errStopped is what starting a server after Stop gives.
var errStopped = errors.New("it was stopped and its directory is gone")

// server is one process at a time in one private directory, whatever the kind. PostgreSQL and Redis
// differ in their arguments, in the signals they understand and in how they show that they are
// ready.
type server struct {
	name string // for errors: "postgres", "redis"
	dir  string
	user *syscall.Credential // nil: our own user
	dog  *watchdog
	last syscall.Signal // ends a server whose data nobody needs
	env  []string       // added to ours

	mu      sync.Mutex // held by whatever starts or ends a process
	process *process   // the latest, nil before the first
	stopped bool
}

type process struct {
	*os.Process
	exited chan struct{} // closed when the process is reaped
	err    error         // how it ended; to be read after exited
}

// newServer makes the private directory, within parent, and the watchdog over it. From here on
// s.close must be called.
func newServer(name, parent string, last syscall.Signal) (*server, error) {
	user, err := serverUser()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	dir, err := privateDir(parent, user)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	dog, err := startWatchdog(dir, last)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, errors.Join(err, os.RemoveAll(dir)))
	}
	return &server{name: name, dir: dir, user: user, dog: dog, last: last}, nil
}

// launch starts argv as the server's user, registered with the watchdog and writing to the log, and
// a goroutine that reaps it. s.mu is held.
func (s *server) launch(argv ...string) error {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	cmd := s.dog.command(argv)
	cmd.Dir = s.dir // ours may be unreadable for the server's user
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.env...)
	// A session of its own, because Ctrl-C in the terminal of `go test` must not reach the server
	// before us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.user}
	err = cmd.Start()
	if err := errors.Join(err, log.Close()); err != nil { // the child has its own copy of log
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	p := &process{Process: cmd.Process, exited: make(chan struct{})}
	s.process = p
	go func() { // ends with the process; whoever ends that waits for exited
		p.err = cmd.Wait()
		forgetClock(p.Pid)
		s.dog.forget()
		close(p.exited)
	}()
	return nil
}

// finish runs argv to its end, for programs such as initdb.
func (s *server) finish(ctx context.Context, argv ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.launch(argv...); err != nil {
		return err
	}
	select {
	case <-s.process.exited:
		if s.process.err != nil {
			return s.failure("run "+filepath.Base(argv[0]), s.process.err)
		}
		return nil
	case <-ctx.Done():
		return errors.Join(s.failure("run "+filepath.Base(argv[0]), ctx.Err()), s.endLocked(syscall.SIGKILL))
	}
}

// start launches the server and waits until ready returns nil. A server that ends before, or does
// not become ready within startLimit, is an error that carries the tail of its log; the process is
// gone then.
func (s *server) start(ctx context.Context, ready func(context.Context) error, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("start %s: %w", s.name, errStopped)
	}
	if err := s.launch(argv...); err != nil {
		return err
	}
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.process.exited:
			why := cmp.Or(s.process.err, errors.New("exit status 0"))
			return s.failure("start "+s.name, fmt.Errorf("it ended before it was ready: %w", why))
		case <-ctx.Done():
			return errors.Join(s.failure("start "+s.name, fmt.Errorf("not ready: %w", err)), s.endLocked(syscall.SIGKILL))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// end sends the signal and waits until the process is reaped. Nothing to do is success.
func (s *server) end(signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(signal)
}

func (s *server) endLocked(signal syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}
	select {
	case <-s.process.exited:
		return nil
	case <-time.After(stopLimit):
		err := s.failure("stop "+s.name, fmt.Errorf("still running %v after signal %v, killed", stopLimit, signal))
		_ = s.process.Kill() // cannot fail but for a process that is gone
		<-s.process.exited
		return err
	}
}

// close ends the process and removes the directory. Later calls do nothing.
func (s *server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.endLocked(s.last), s.dog.release())
}

// pid is the id of the latest process, 0 before the first.
func (s *server) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.Pid
}

func (s *server) logPath() string { return filepath.Join(s.dir, "log") }

// failure adds the end of the log, the only place where a server says why it did not start.
func (s *server) failure(what string, err error) error {
	log, readErr := os.ReadFile(s.logPath())
	if readErr != nil {
		return fmt.Errorf("%s: %w", what, errors.Join(err, readErr))
	}
	const tail = 2000
	log = log[max(0, len(log)-tail):]
	return fmt.Errorf("%s: %w; its log ends:\n%s", what, err, strings.TrimSpace(string(log)))
}
