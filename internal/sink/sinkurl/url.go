package sinkurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxrelay/outbox"
)

// Split is the parts of a URL with one host or several, as they are written. net/url knows one
// host, and so do most clients.
type Split struct {
	Scheme string
	User   string // with the @
	Hosts  []string
	Rest   string // path, options and fragment
}

// SplitHosts takes a URL apart.
func SplitHosts(text string) Split {
	scheme, rest, _ := strings.Cut(text, "://")
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	user := rest[:strings.LastIndexByte(rest[:end], '@')+1]
	return Split{scheme, user, strings.Split(rest[len(user):end], ","), rest[end:]}
}

// One is the URL with one host.
func (s Split) One(host string) string { return s.Scheme + "://" + s.User + host + s.Rest }

// Family is what URLs of one kind of server look like.
type Family struct {
	Name          string // in errors
	Form          string // likewise: how such a URL is written
	Plain, Secure string // schemes without TLS and with
	Port          string // of a host without one
	SecurePort    string // likewise with TLS; "": Port
	Path          bool   // it may have one
	Others        []string
}

// URL is what a URL says.
type URL struct {
	Split
	Secure  bool
	Account *url.Userinfo
	Hosts   []string // host:port
	Options url.Values

	family *Family
}

// ErrPort is the error of a URL with a port that cannot be.
var ErrPort = errors.New("a port in the URL is none of 1 to 65535 (not shown, it may hold a password)")

// Parse reads a URL. An error shows nothing of it: a password with an unescaped slash turns up as
// port, path or option.
func (f *Family) Parse(text string) (*URL, error) {
	if err := CheckUser(text); err != nil {
		return nil, err
	}
	u := &URL{Split: SplitHosts(text), family: f}
	u.Scheme = strings.ToLower(u.Scheme)
	u.Secure = u.Scheme == f.Secure
	parsed, err := url.Parse("x://" + u.User + "host" + u.Rest)
	if err != nil || u.Scheme != f.Plain && !u.Secure || strings.Contains(text, "#") ||
		!f.Path && strings.Trim(parsed.Path, "/") != "" || u.User != "" && parsed.User.Username() == "" {
		return nil, f.errForm()
	}
	u.Account = parsed.User
	for _, name := range u.Split.Hosts {
		host, err := u.hostPort(name)
		if err != nil {
			return nil, err
		}
		u.Hosts = append(u.Hosts, host)
	}
	if u.Options, err = url.ParseQuery(parsed.RawQuery); err != nil {
		return nil, f.errForm()
	}
	return u, nil
}

func (f *Family) errForm() error {
	return fmt.Errorf("the %s URL is not of the form %s; in user, password and path write / ? # %% @ percent-encoded. It "+
		"is not shown here because it may hold a password", f.Name, f.Form)
}

// CheckTLS refuses settings of TLS for a URL that does not ask for it.
func (u *URL) CheckTLS(settings *tls.Config) error {
	if settings != nil && !u.Secure {
		return fmt.Errorf("TLS is set but the URL is not %s://", u.family.Secure)
	}
	return nil
}

// Plaintext returns the hosts of a URL that are reached without TLS and may be on other machines.
func (f *Family) Plaintext(text string) []string {
	u, err := f.Parse(text)
	if err != nil || u.Secure {
		return nil
	}
	return Elsewhere(u.Hosts)
}

// Encrypted returns the addresses of a URL where connections begin with TLS.
func (f *Family) Encrypted(text string) []string {
	u, err := f.Parse(text)
	if err != nil || !u.Secure {
		return nil
	}
	return u.Hosts
}

// Failed classes an error of connecting. Waiting cures no refusal, which only the sink recognises,
// nor a certificate that nobody vouches for.
func Failed(err error, refused bool) error {
	var certificate *tls.CertificateVerificationError
	if refused || errors.As(err, &certificate) {
		return outbox.Permanent(err)
	}
	return outbox.Unavailable(err)
}

// hostPort returns a host with its port.
func (u *URL) hostPort(name string) (string, error) {
	port := u.family.Port
	if u.Secure && u.family.SecurePort != "" {
		port = u.family.SecurePort
	}
	parsed, err := url.Parse("x://" + name)
	if err != nil || parsed.Hostname() == "" || parsed.User != nil || strings.ContainsAny(name, "/ ") {
		return "", u.family.errForm()
	}
	if parsed.Port() != "" {
		port = parsed.Port()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", ErrPort
	}
	return net.JoinHostPort(parsed.Hostname(), port), nil
}

// Option is an option of a URL.
type Option struct {
	Name  string
	Takes string // in words
	Set   func(value string) bool
}

// Take gives the URL's options to those that take them. One that nobody takes is an error, but for
// the family's Others.
func (u *URL) Take(options ...Option) error {
	left := maps.Clone(u.Options)
	problems := []error{Take(left, options...)}
	known := slices.Clone(u.family.Others)
	for _, o := range options {
		known = append(known, o.Name)
	}
	slices.Sort(known)
	for name := range left {
		if !slices.Contains(u.family.Others, name) {
			problems = append(problems, fmt.Errorf("the URL has an option that is none of %s (not shown, it may hold a "+
				"password)", strings.Join(known, ", ")))
		}
	}
	return errors.Join(problems...)
}

// Take takes out of the options of a URL those that are named, and sets what they mean.
func Take(of url.Values, options ...Option) error {
	var problems []error
	for _, o := range options {
		switch values := of[o.Name]; {
		case len(values) > 1:
			problems = append(problems, fmt.Errorf("the URL has the option %s twice", o.Name))
		case len(values) == 1 && !o.Set(values[0]):
			problems = append(problems, fmt.Errorf("the URL's option %s is none of %s", o.Name, o.Takes))
		}
		of.Del(o.Name)
	}
	return errors.Join(problems...)
}

// CloudEvents is the option that chooses the form of a CloudEvent.
func CloudEvents(binary, watermill *bool) Option {
	return OneOf("cloudevents", []string{"structured", "binary", "watermill"}, func(value string) {
		*binary, *watermill = value == "binary", value == "watermill"
	})
}

// OneOf is an option that takes one of some values.
func OneOf(name string, values []string, set func(value string)) Option {
	return Option{name, strings.Join(values, ", "), func(value string) bool {
		known := slices.Contains(values, value)
		if known {
			set(value)
		}
		return known
	}}
}

// Flag is an option that takes true or false.
func Flag(name string, to *bool) Option {
	return OneOf(name, []string{"true", "false"}, func(value string) { *to = value == "true" })
}

// Text is an option that takes any text.
func Text(name string, to *string) Option {
	return Option{name, "any text", func(value string) bool {
		*to = value
		return true
	}}
}

// Number is an option that takes an integer.
func Number(name string, to *int, least, most int) Option {
	return Option{name, fmt.Sprintf("%d to %d", least, most), func(value string) bool {
		n, err := strconv.Atoi(value)
		*to = n
		return err == nil && n >= least && n <= most
	}}
}

// Secret is the password, or a user that is a token.
func (u *URL) Secret() string {
	if u.Account == nil {
		return ""
	}
	if password, ok := u.Account.Password(); ok {
		return password
	}
	return u.Account.Username()
}

// Hide replaces an error that quotes a secret.
func Hide(err error, secret string) error {
	if err == nil || secret == "" || !strings.Contains(err.Error(), secret) {
		return err
	}
	return errors.New("the server's answer contains the password and is not shown")
}

// Elsewhere returns those of the hosts, with their ports or without, that may be on other machines:
// a name that is not localhost may be anybody's.
func Elsewhere(hosts []string) (names []string) {
	for _, host := range hosts {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.Trim(host, "[]")
		if host != "" && host != "localhost" && !strings.HasPrefix(host, "/") && !net.ParseIP(host).IsLoopback() {
			names = append(names, host)
		}
	}
	return names
}
