package endpoint

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// Shown is what may be shown of an endpoint.
type Shown struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant,omitempty"` // whose events alone it takes
	// To which of the events for all subscribers it has subscribed, by patterns; to none if both
	// are empty.
	Topics  []string `json:"topics,omitempty"`
	Types   []string `json:"types,omitempty"`  // of aggregates
	URL     string   `json:"url"`              // without user and query
	State   string   `json:"state"`            // enabled, disabled
	Reason  string   `json:"reason,omitempty"` // why it is disabled
	Secrets int      `json:"secrets"`          // that sign what is sent
}

// List returns the endpoints.
func (e *Endpoints) List(ctx context.Context) (all []Shown, err error) {
	list, err := e.Sink.List(ctx)
	for _, one := range list {
		s := Shown{Name: one.Name, Tenant: one.Tenant, Topics: one.Topics, Types: one.Types, URL: masked(one.URL),
			State: "enabled", Secrets: len(one.Secrets)}
		if one.Disabled {
			s.State = "disabled"
		}
		if e.table != nil {
			s.Reason = e.table.known[one.Name].Reason
		}
		all = append(all, s)
	}
	return all, err
}

// masked is a URL without user, query and fragment.
func masked(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return "(no valid URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Editable tells whether they are in a table.
func (e *Endpoints) Editable() bool { return e.table != nil }

// Add adds an endpoint. Without a secret it makes one and returns it, which nothing shows again.
func (e *Endpoints) Add(ctx context.Context, one Endpoint, by Change) (made Secret, err error) {
	if one.Name == "" {
		return "", errors.New("the endpoint has no name")
	}
	if len(one.Secrets) == 0 {
		if made, err = newSecret(); err != nil {
			return "", err
		}
		one.Secrets = []Secret{made}
	}
	if err := e.Sink.Check(one); err != nil {
		return "", err
	}
	r := row{Endpoint: one, Values: map[string]string{}, Sealed: make([]sealed, len(one.Secrets))}
	for i, value := range one.Secrets {
		if r.Sealed[i].Value, err = e.table.ring.seal(value, r.use(aSecret)); err != nil {
			return "", err
		}
	}
	for name, value := range one.Headers {
		if r.Values[name], err = e.table.ring.seal(value, r.use(aHeader+name)); err != nil {
			return "", err
		}
	}
	done, err := e.table.rows.change(ctx, "endpoint_add", r, by)
	if err == nil && !done {
		err = fmt.Errorf("there is an endpoint %q already: outbox endpoints remove takes it away", r.Name)
	}
	return made, err
}

// Rotate puts a secret before the present one, which goes on signing for a while: the one that is
// given, or one that is made and returned. It drops former secrets that are not for this row any
// more: with one of them no relay could use the endpoint.
func (e *Endpoints) Rotate(
	ctx context.Context, name string, given Secret, overlap time.Duration, by Change,
) (made Secret, err error) {
	r, err := e.row(name)
	if err != nil {
		return "", err
	}
	if given == "" {
		if made, err = newSecret(); err != nil {
			return "", err
		}
		given = made
	}
	if err := given.Check(); err != nil {
		return "", fmt.Errorf("the new secret %w", err)
	}
	text, err := e.table.ring.seal(given, r.use(aSecret))
	if err != nil {
		return "", err
	}
	now := time.Now().UTC().Truncate(time.Second)
	r.Sealed = slices.DeleteFunc(r.Sealed, func(s sealed) bool {
		_, err := e.table.ring.open(s.Value, r.use(aSecret))
		return !s.Until.IsZero() && !now.Before(s.Until) || overlap <= 0 || errors.Is(err, errMoved)
	})
	for i := range r.Sealed {
		if s := &r.Sealed[i]; s.Until.IsZero() || s.Until.After(now.Add(overlap)) {
			s.Until = now.Add(overlap)
		}
	}
	r.Sealed = slices.Insert(r.Sealed, 0, sealed{Value: text})
	return made, e.put(ctx, r, by)
}

// Switch enables or disables an endpoint, and tells whether that changed anything.
func (e *Endpoints) Switch(ctx context.Context, name string, on bool, by Change) (bool, error) {
	r, err := e.row(name)
	if err != nil || r.Since.IsZero() == on {
		return false, err
	}
	r.Since, r.Reason = time.Time{}, ""
	if !on {
		r.Since, r.Reason = time.Now(), by.Reason
	}
	return true, e.put(ctx, r, by)
}

// Remove removes an endpoint.
func (e *Endpoints) Remove(ctx context.Context, name string, by Change) error {
	r, err := e.row(name)
	if err != nil {
		return err
	}
	_, err = e.table.rows.change(ctx, "endpoint_remove", r, by)
	return err
}

// row is an endpoint as the table had it when it was opened.
func (e *Endpoints) row(name string) (row, error) {
	r, ok := e.table.known[name]
	if !ok {
		return row{}, fmt.Errorf("there is no endpoint %q: see outbox endpoints list", name)
	}
	return r, nil
}

// put replaces a row, in which everything is sealed with the first key then.
func (e *Endpoints) put(ctx context.Context, r row, by Change) error {
	ring := e.table.ring
	again := func(text, as string) string {
		if plain, err := ring.open(text, r.use(as)); err == nil {
			if fresh, err := ring.seal(plain, r.use(as)); err == nil {
				return fresh
			}
		}
		return text // with a key that is gone it stays as it is, and no relay can use it
	}
	for i := range r.Sealed {
		r.Sealed[i].Value = again(r.Sealed[i].Value, aSecret)
	}
	for name, value := range r.Values {
		r.Values[name] = again(value, aHeader+name)
	}
	done, err := e.table.rows.change(ctx, "endpoint_change", r, by)
	if err == nil && !done {
		return fmt.Errorf("endpoint %q was changed by somebody else meanwhile: try again", r.Name)
	}
	return err
}

// newSecret makes a symmetric secret of 32 bytes.
func newSecret() (Secret, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	return Secret("whsec_" + base64.StdEncoding.EncodeToString(key)), nil
}
