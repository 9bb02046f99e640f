package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/outboxrelay/outbox/internal/store/pooler"
)

// Plaintext returns the other machine that the database's connections go to without TLS, "" if
// there is none. It is asked of a connection, not of the URL: without sslmode the server decides.
func (d postgresDatabase) Plaintext(ctx context.Context) (machine string, err error) {
	conn, err := d.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("look whether connections have TLS: %w", err)
	}
	defer conn.Release()
	return plaintext(conn.Conn().PgConn().Conn()), nil
}

// Pooled tells whether connections lead to a pooler.
func (d postgresDatabase) Pooled(ctx context.Context) (bool, error) {
	conn, err := d.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("look for a pooler: %w", err)
	}
	defer conn.Release()
	return pooler.Between(ctx, conn.Conn())
}

// Certified returns when the certificate ends that the server has shown; zero: connections have no
// TLS.
func (d postgresDatabase) Certified(ctx context.Context) (ends time.Time, err error) {
	conn, err := d.Acquire(ctx)
	if err != nil {
		return ends, fmt.Errorf("look at the server's certificate: %w", err)
	}
	defer conn.Release()
	if secured, ok := conn.Conn().PgConn().Conn().(*tls.Conn); ok && len(secured.ConnectionState().PeerCertificates) > 0 {
		ends = secured.ConnectionState().PeerCertificates[0].NotAfter
	}
	return ends, nil
}

// Pooled, Certified and Plaintext are for databases that are reached over a network.
func (*sqliteDatabase) Pooled(context.Context) (bool, error) { return false, nil }

// Certified implements condition.Database.
func (*sqliteDatabase) Certified(context.Context) (time.Time, error) { return time.Time{}, nil }

// Plaintext is for databases that are reached over a network.
func (*sqliteDatabase) Plaintext(context.Context) (string, error) { return "", nil }

// plaintext returns the other machine to which a connection goes without TLS.
func plaintext(conn net.Conn) string {
	to, overTCP := conn.RemoteAddr().(*net.TCPAddr)
	if _, encrypted := conn.(*tls.Conn); encrypted || !overTCP || to.IP.IsLoopback() {
		return ""
	}
	return to.IP.String()
}

// warnPlaintext says once a process which servers on other machines are spoken to without TLS, and
// whether a database's file is for others to read: passwords, tokens' hashes and payloads are there
// for whoever is on the way.
func (p process) warnPlaintext(ctx context.Context, db Database) {
	machine, err := db.Plaintext(ctx)
	if err != nil {
		return // the part itself is about to say so
	}
	p.databases.plaintext.Do(func() {
		if file, ok := FileOf(p.cfg.Database); ok {
			if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
				p.log.Warn("others than its owner may read or write the database's file: take that away with chmod 600, also "+
					"of its -wal and -shm", "file", file, "mode", info.Mode().Perm().String())
			}
		} else if _, ignored, err := pooler.ParseURL(p.cfg.Database); err == nil && len(ignored) > 0 {
			p.log.Info("ignored parameters of other clients in the database URL", "parameters", ignored)
		}
		if machine != "" {
			p.log.Warn("PostgreSQL is on another machine and connections to it have no TLS: "+
				"put sslmode=verify-full and sslrootcert=FILE into the URL", "server", machine)
		}
		for _, s := range p.cfg.AllSinks() {
			if s.Driver.Plaintext == nil {
				continue
			}
			if hosts := s.Driver.Plaintext(s.URL); len(hosts) > 0 {
				p.log.Warn("a sink is not on this machine and connections to it have no TLS: make the URL one with TLS",
					"sink", s.Name, "server", strings.Join(hosts, ","), "urls", s.Driver.Example)
			}
		}
	})
}
