package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/outboxrelay/outbox/internal/store/endpoint"
)

// editor changes the endpoints of a table.
type editor struct {
	*endpointTable
	cfg Config
}

var _ endpoint.Editor = editor{}

// newEditor needs no sink: endpoints can be changed where none of them can be reached.
func newEditor(ctx context.Context, cfg Config) (endpoint.Editor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure webhook endpoints: %w", err)
	}
	t, err := newTable(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return editor{t, cfg}, nil
}

func (e editor) List(ctx context.Context) (all []endpoint.Shown, err error) {
	rows, _, err := e.store.Read(ctx, "")
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, row := range rows {
		one := listed(e.endpoint(row, now))
		one.Reason = row.Reason
		all = append(all, one)
	}
	return all, nil
}

// listed is what may be shown of an endpoint.
func listed(e Endpoint) endpoint.Shown {
	state := "enabled"
	if e.Disabled {
		state = "disabled"
	}
	return endpoint.Shown{Name: e.Name, Tenant: e.Tenant, Topics: e.Topics, Types: e.Types, URL: e.maskedURL(),
		State: state, Secrets: len(e.Secrets)}
}

// Add resolves references here, where somebody sits who may read what they name, and never again.
func (e editor) Add(ctx context.Context, row endpoint.Stored, c endpoint.Change) (secret string, err error) {
	if len(row.Secrets) == 0 {
		if secret, err = newSecret(); err != nil {
			return "", err
		}
		row.Secrets = []endpoint.Secret{{Value: secret}}
	}
	plain := Endpoint{Name: row.Name, Topics: row.Topics, Types: row.Types, URL: row.URL, Timeout: row.Timeout,
		Concurrency: row.Concurrency, Rate: row.Rate, Headers: map[string]Secret{}}
	if row.Name == "" {
		return "", errors.New("the endpoint has no name")
	}
	if err := plain.resolve(row); err != nil {
		return "", err
	}
	if _, err := newTarget(plain, e.cfg); err != nil {
		return "", err
	}
	row.Headers = map[string]string{}
	for name, value := range plain.Headers {
		if row.Headers[name], err = e.ring.seal(string(value), useOf(row, useHeader+name)); err != nil {
			return "", err
		}
	}
	for i, value := range plain.Secrets {
		if row.Secrets[i].Value, err = e.ring.seal(string(value), useOf(row, useSecret)); err != nil {
			return "", err
		}
	}
	done, err := e.store.Put(ctx, row, c)
	if err == nil && !done {
		err = fmt.Errorf("there is an endpoint %q already: outbox endpoints remove takes it away", row.Name)
	}
	if err != nil {
		return "", err
	}
	return secret, nil
}

// resolve takes over the secrets and headers of a row, or what they refer to.
func (e *Endpoint) resolve(row endpoint.Stored) error {
	for i, s := range row.Secrets {
		text, err := resolved(s.Value)
		if err != nil {
			return fmt.Errorf("secret %d: %w", i+1, err)
		}
		e.Secrets = append(e.Secrets, Secret(text))
	}
	for name, value := range row.Headers {
		text, err := resolved(value)
		if err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
		e.Headers[name] = Secret(text)
	}
	return nil
}

// resolved is a text of somebody's command line, or what it refers to there.
func resolved(text string) (string, error) {
	return resolve(text, "", os.LookupEnv, map[string]stamp{})
}

// Rotate drops former secrets that are not for this row any more: with one of them no relay could use the endpoint.
func (e editor) Rotate(
	ctx context.Context, name, given string, overlap time.Duration, c endpoint.Change,
) (secret string, err error) {
	row, err := e.row(ctx, name)
	if err != nil {
		return "", err
	}
	value := given
	if value == "" {
		secret, err = newSecret()
		value = secret
	} else {
		value, err = resolved(value)
	}
	if err != nil {
		return "", err
	}
	if _, err := newSigner(value); err != nil {
		return "", fmt.Errorf("the new secret %w", err)
	}
	if value, err = e.ring.seal(value, useOf(row, useSecret)); err != nil {
		return "", err
	}
	now := time.Now().UTC().Truncate(time.Second)
	row.Secrets = slices.DeleteFunc(row.Secrets, func(s endpoint.Secret) bool {
		_, err := e.ring.open(s.Value, useOf(row, useSecret))
		return !s.Until.IsZero() && !now.Before(s.Until) || overlap <= 0 || errors.Is(err, errMoved)
	})
	for i := range row.Secrets {
		if s := &row.Secrets[i]; s.Until.IsZero() || s.Until.After(now.Add(overlap)) {
			s.Until = now.Add(overlap)
		}
	}
	row.Secrets = slices.Insert(row.Secrets, 0, endpoint.Secret{Value: value})
	if err := e.put(ctx, row, c); err != nil {
		return "", err
	}
	return secret, nil
}

func (e editor) Disable(ctx context.Context, name string, c endpoint.Change) (bool, error) {
	row, err := e.row(ctx, name)
	if err != nil || !row.Disabled.IsZero() {
		return false, err
	}
	row.Disabled, row.Reason = time.Now(), c.Reason
	return true, e.put(ctx, row, c)
}

func (e editor) Enable(ctx context.Context, name string, c endpoint.Change) (bool, error) {
	row, err := e.row(ctx, name)
	if err != nil || row.Disabled.IsZero() {
		return false, err
	}
	row.Disabled, row.Reason = time.Time{}, ""
	return true, e.put(ctx, row, c)
}

func (e editor) Remove(ctx context.Context, name string, c endpoint.Change) error {
	done, err := e.store.Remove(ctx, name, c)
	if err == nil && !done {
		return noEndpoint(name)
	}
	return err
}

func (e editor) row(ctx context.Context, name string) (endpoint.Stored, error) {
	rows, _, err := e.store.Read(ctx, "")
	if err != nil {
		return endpoint.Stored{}, err
	}
	for _, row := range rows {
		if row.Name == name {
			return row, nil
		}
	}
	return endpoint.Stored{}, noEndpoint(name)
}

func noEndpoint(name string) error {
	return fmt.Errorf("there is no endpoint %q: see outbox endpoints list", name)
}

// put replaces a row, in which everything is sealed with the first key then.
func (e editor) put(ctx context.Context, row endpoint.Stored, c endpoint.Change) error {
	again := func(text, as string) (string, error) {
		if e.ring.current(text) || len(e.ring) == 0 {
			return text, nil
		}
		plain, err := e.ring.open(text, useOf(row, as))
		if err != nil {
			return text, nil //nolint:nilerr // with a key that is gone it stays as it is, and no relay can use it
		}
		return e.ring.seal(plain, useOf(row, as))
	}
	var err error
	for i := range row.Secrets {
		if row.Secrets[i].Value, err = again(row.Secrets[i].Value, useSecret); err != nil {
			return err
		}
	}
	for name, value := range row.Headers {
		if row.Headers[name], err = again(value, useHeader+name); err != nil {
			return err
		}
	}
	done, err := e.store.Put(ctx, row, c)
	if err == nil && !done {
		return fmt.Errorf("endpoint %q was changed by somebody else meanwhile: try again", row.Name)
	}
	return err
}

// newSecret makes a symmetric secret of 32 bytes.
func newSecret() (string, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	return symmetric + base64.StdEncoding.EncodeToString(key), nil
}

// fileList are the endpoints of a file, which somebody edits.
type fileList struct{ *endpointFile }

func (f fileList) List(context.Context) (all []endpoint.Shown, err error) {
	for _, e := range f.all() {
		all = append(all, listed(e))
	}
	return all, nil
}
