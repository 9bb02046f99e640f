package condition

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
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

func sinkDown(_ context.Context, x *Examination) ([]Finding, error) {
	return toldOfSinks(x, func(t operate.Trouble) map[string]string { return t.Sinks },
		"sink %s is down%s, as %s; nothing is lost: %s")
}

func sinkSlow(_ context.Context, x *Examination) ([]Finding, error) {
	return toldOfSinks(x, func(t operate.Trouble) map[string]string { return t.Slow },
		"sink %s is slow%s, as %s: %s")
}

// toldOfSinks is what relays tell of their sinks: a finding has its name, since when, which relays
// say so, and why.
func toldOfSinks(
	x *Examination, of func(operate.Trouble) map[string]string, format string,
) (found []Finding, err error) {
	all, err := x.troubles()
	byName := map[string]*Finding{}
	relays := map[string][]string{}
	for _, t := range all {
		for name, why := range of(t) {
			f := byName[name]
			if f == nil {
				f = &Finding{About: name, Since: t.Since, Says: why}
				byName[name] = f
			}
			if t.Since != nil && f.Since != nil && t.Since.Before(*f.Since) {
				f.Since = t.Since
			}
			if !slices.Contains(relays[name], t.Relay) {
				relays[name] = append(relays[name], t.Relay)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		f := *byName[name]
		lasts := ""
		if f.Since != nil {
			lasts = " for " + lasting(x.Now().Sub(*f.Since))
		}
		verb := " says"
		if len(relays[name]) > 1 {
			verb = " say"
		}
		f.Says = fmt.Sprintf(format, name, lasts, strings.Join(relays[name], " and ")+verb, f.Says)
		found = append(found, f)
	}
	return found, err
}

func sinkOwes(ctx context.Context, x *Examination) (found []Finding, err error) {
	if x.DB == nil {
		return nil, errNothing // OBX-006 has said why
	}
	all, err := x.DB.Debts(ctx)
	for _, d := range all {
		if d.Oldest == nil || *d.Oldest <= x.Limits.Owed.Seconds() {
			continue
		}
		age := time.Duration(*d.Oldest * float64(time.Second))
		found = append(found, Finding{About: d.Sink,
			Says: fmt.Sprintf("%s has %s of %s still to take, the oldest for %s", d.Sink, many(d.Owed, "event"), d.Table,
				lasting(age)),
			Remedy: fmt.Sprintf("outbox events --table %s --to %s", d.Table, d.Sink)})
	}
	return found, err
}

func sinkUnserved(ctx context.Context, x *Examination) (found []Finding, err error) {
	if x.DB == nil {
		return nil, errNothing // OBX-006 has said why
	}
	all, err := x.DB.Debtors(ctx)
	for _, d := range all {
		switch {
		case d.Served:
		case d.OfGroup():
			f := at(d.Sink, "no process of group %s serves the events of %s that it has failed to handle", d.Sink, d.Table)
			f[0].Remedy = "start a process of the group, and not a relay"
			found = append(found, f...)
		default:
			found = append(found, at(d.Sink, "no relay serves what %s owes of %s", d.Sink, d.Table)...)
		}
	}
	return found, err
}
