package condition

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// ofSinks looks at each sink that could be opened.
func ofSinks(look func(ctx context.Context, s *connected) ([]Finding, error)) check {
	return func(ctx context.Context, x *Examination) (found []Finding, err error) {
		all := x.sinks()
		if len(all) == 0 {
			return nil, errNothing
		}
		for i := range all {
			one, failed := look(ctx, &all[i])
			if failed != nil {
				err = fmt.Errorf("sink %s: %w", all[i].Name, failed)
			}
			found = append(found, one...)
		}
		return found, err
	}
}

var sinkUnreachable = ofSinks(func(ctx context.Context, s *connected) ([]Finding, error) {
	err := s.err
	if ping := outbox.AbilitiesOf(s.sink).Ping; err == nil && ping != nil {
		err = ping(ctx)
	}
	if err == nil {
		return nil, nil
	}
	return at(s.Name, "%s cannot be reached from here: %v", s.String(), err), nil
})

var sinkWeak = ofSinks(func(ctx context.Context, s *connected) (found []Finding, err error) {
	ask := outbox.AbilitiesOf(s.sink).Weaknesses
	if s.err != nil || ask == nil {
		return nil, nil
	}
	weak, err := ask(ctx)
	for _, w := range weak {
		found = append(found, Finding{About: s.Name, Says: s.String() + ": " + w.Says, Remedy: w.Remedy})
	}
	return found, err
})

func sinkPlaintext(_ context.Context, x *Examination) (found []Finding, err error) {
	for _, s := range x.Config.AllSinks() {
		if s.Driver.Plaintext == nil {
			continue
		}
		if hosts := s.Driver.Plaintext(s.URL); len(hosts) > 0 {
			found = append(found, Finding{About: s.Name, Remedy: "make the URL one with TLS: " + s.Driver.Example,
				Says: fmt.Sprintf("%s is on another machine (%s) and connections to it have no TLS",
					s, strings.Join(hosts, ", "))})
		}
	}
	return found, nil
}

func certificateEnds(ctx context.Context, x *Examination) (found []Finding, err error) {
	look := func(about string, ends time.Time) {
		left := ends.Sub(x.Now())
		if left > x.Limits.Ends {
			return
		}
		f := Finding{About: about, Since: &ends, Severity: Warning,
			Says: fmt.Sprintf("the certificate of %s ends in %s", about, lasting(left))}
		switch {
		case left <= 0:
			f.Severity, f.Says = Critical, fmt.Sprintf("the certificate of %s has ended, %s ago", about, lasting(-left))
		case left < x.Limits.Ends/7:
			f.Severity = Critical
		}
		found = append(found, f)
	}
	if x.DB != nil {
		ends, err := x.DB.Certified(ctx)
		if err != nil {
			return nil, err
		}
		if !ends.IsZero() {
			look("the database", ends)
		}
	}
	for _, s := range x.Config.AllSinks() {
		if s.Driver.Encrypted == nil {
			continue
		}
		for _, address := range s.Driver.Encrypted(s.URL) {
			// What the server shows is looked at, whoever has signed it: whether it is trusted,
			// connecting tells.
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
			conn, failed := dialer.DialContext(ctx, "tcp", address)
			if failed != nil {
				continue // OBX-023 says so
			}
			if shown := conn.(*tls.Conn).ConnectionState().PeerCertificates; len(shown) > 0 {
				look("sink "+s.Name, shown[0].NotAfter)
			}
			_ = conn.Close() // nothing was sent
		}
	}
	return found, nil
}
