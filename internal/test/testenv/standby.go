package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNoBackup is returned by Standby where the server's programs come without pg_basebackup, as
// those of `make deps POSTGRES=18` do.
var ErrNoBackup = errors.New("no pg_basebackup beside the server")

// Standby starts a streaming replica of p: a copy of its data that follows asynchronously, with the
// same settings, and answers reads. ctx bounds the start. It may be cut off with ALTER SYSTEM SET
// primary_conninfo = ” and made a primary with pg_promote().
func (p *Postgres) Standby(ctx context.Context) (*Postgres, error) {
	backup := filepath.Join(filepath.Dir(p.argv[0]), "pg_basebackup") // another version's does not do
	if _, err := os.Stat(backup); err != nil {
		return nil, fmt.Errorf("start standby: %w: %s", ErrNoBackup, filepath.Dir(backup))
	}
	s, err := newServer("standby", "", syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	standby := &Postgres{server: s, config: p.config}
	if err := standby.follow(ctx, p, backup); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return standby, nil
}

func (p *Postgres) follow(ctx context.Context, primary *Postgres, backup string) error {
	data := filepath.Join(p.server.dir, "data")
	err := p.server.finish(ctx, backup, "-h", primary.server.dir, "-p", fmt.Sprint(primary.port), "-U", "postgres", "-D",
		data,
		"--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	if err != nil {
		return err
	}
	if p.port, err = freePort(); err != nil {
		return fmt.Errorf("start standby: %w", err)
	}
	p.argv = append([]string{primary.argv[0], "-D", data}, p.settings()...)
	return p.server.start(ctx, p.ready, p.argv...)
}
