package pooler

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ignored are parameters that only tune other clients: Prisma, node-postgres, asyncpg, libpq, JDBC,
// Rails and Django, a line each.
var ignored = strings.Fields(`
	pgbouncer connection_limit pool_timeout statement_cache_size socket_timeout single_use_connections
	uselibpqcompat supa workaround
	prepared_statement_cache_size async_fallback command_timeout
	keepalives keepalives_idle keepalives_interval keepalives_count gssencmode sslcompression load_balance_hosts
	applicationname preparethreshold rewritebatchedinserts tcpkeepalive logintimeout sockettimeout stringtype
	pool prepared_statements advisory_locks encoding checkout_timeout reaping_frequency
	conn_max_age conn_health_checks`)

// refused are parameters of other clients that decide about the server or its protection. The text
// is the remedy.
var refused = map[string]string{
	"ssl":                      "write sslmode=disable, require or verify-full",
	"sslaccept":                "write sslmode=verify-full, or require to accept any certificate",
	"ssl_require":              "write sslmode=require or verify-full",
	"sslfactory":               "write sslmode and sslrootcert",
	"sslidentity":              "write sslcert and sslkey",
	"sslcrl":                   "revocation lists are not supported",
	"sslcrldir":                "revocation lists are not supported",
	"ssl_min_protocol_version": "leave it out, the minimum is TLS 1.2",
	"ssl_max_protocol_version": "leave it out, the newest version is used",
	"requirepeer":              "leave it out, the server's user is not checked",
	"gssencmode=require":       "GSSAPI encryption is not available, write sslmode=verify-full",
	"hostaddr":                 "write the address as host",
	"replication":              "leave it out",
	"schema_search_path":       "write search_path",
	"targetservertype":         "write target_session_attrs",
}

var (
	variant   = regexp.MustCompile(`^(?i:jdbc:)?(?i:postgres(?:ql)?)(?:\+\w+)?://`)
	jdbc      = regexp.MustCompile(`^\s*["']?(?i:jdbc:)`)
	parameter = regexp.MustCompile(`^[A-Za-z_][\w.]*$`)
	variable  = regexp.MustCompile(`^\$\w+$|\$[{(]\w`)
	// namesNoSecret fits reasons of pgx that quote at most a parameter that is none of the user's
	// or the password.
	namesNoSecret = regexp.MustCompile(`^(failed to configure TLS|invalid (port$|sslcertmode|connect_timeout|` +
		`default_query_exec_mode)|failed to read service|cannot parse pool_|could not match|` +
		`failed to parse as URL \(extra key/value separator)`)

	errVariable = errors.New("the URL contains a variable that nothing has replaced by its value, such as ${NAME}; " +
		"if a $ is meant, write %24")
	errUser = errors.New("the user or password in the URL contains % @ / ? # or a space; write %25 %40 %2F %3F %23 %20 " +
		"(the URL is not shown, it may hold a password)")
	errForm = errors.New("the text is not a PostgreSQL URL or keyword/value string (not shown, it may hold a password); " +
		"want postgres://user:password@host:5432/database")
)

// CleanURL returns a database URL without surrounding white space and quotes, and with the scheme
// postgres:// where another client would write jdbc:postgresql:// or postgresql+asyncpg://.
func CleanURL(text string) string {
	text = strings.TrimSpace(text)
	if n := len(text); n > 1 && strings.ContainsAny(text[:1], `"'`) && text[n-1] == text[0] {
		text = strings.TrimSpace(text[1 : n-1])
	}
	if scheme := variant.FindString(text); scheme != "" {
		text = "postgres://" + text[len(scheme):]
	}
	return text
}

// ParseURL reads a URL or keyword/value string of PostgreSQL, also as other clients write it. It
// returns the names of the parameters that it ignored. No error contains a user or password. A
// superuser's connection fails with a *SuperuserError where other roles could have their code run.
func ParseURL(text string) (cfg *pgxpool.Config, without []string, err error) {
	isJDBC := jdbc.MatchString(text)
	text = CleanURL(text)
	if variable.MatchString(text) {
		return nil, nil, errVariable
	}
	if rest, isURL := strings.CutPrefix(text, "postgres://"); isURL {
		if isJDBC { // there the user is a parameter, and may contain @
			rest, _, _ = strings.Cut(rest, "?")
		}
		user := rest[:max(strings.LastIndexByte(rest, '@'), 0)]
		if _, err := url.PathUnescape(user); err != nil || strings.ContainsAny(user, "@/?# ") {
			return nil, nil, errUser
		}
	}
	if cfg, err = pgxpool.ParseConfig(text); err != nil {
		return nil, nil, reason(err)
	}
	hosts := cfg.ConnConfig.Host
	for _, f := range cfg.ConnConfig.Fallbacks {
		hosts += f.Host
	}
	if strings.ContainsAny(hosts, ";=@ ") {
		return nil, nil, errForm
	}
	params := cfg.ConnConfig.RuntimeParams
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value, key := params[name], strings.ToLower(name)
		remedy := refused[key] + refused[key+"="+value]
		switch {
		case !parameter.MatchString(name):
			return nil, nil, errForm
		case remedy != "":
			return nil, nil, fmt.Errorf("the parameter %s is not supported; %s", name, remedy)
		case slices.Contains(ignored, key):
			without = append(without, name)
		case key == "schema": // Prisma's is one name, and that of JDBC a list
			value = pgx.Identifier{value}.Sanitize()
			fallthrough
		case key == "currentschema":
			if params["search_path"] == "" && strings.Trim(value, `"`) != "public" {
				params["search_path"] = value
			}
		default:
			continue
		}
		delete(params, name)
	}
	cfg.ConnConfig.AfterConnect = refuseSuperuser
	return cfg, without, nil
}

// reason returns what is wrong with a connection string. pgx quotes all of the text, and in a
// malformed one it cannot tell where the password is.
func reason(err error) error {
	text := err.Error()
	text = text[strings.LastIndex(text, "`: ")+1:]
	switch text = strings.TrimPrefix(text, ": "); {
	case strings.HasSuffix(text, "(sslmode is invalid)"):
		return errors.New("sslmode in the URL is none of disable, allow, prefer, require, verify-ca and verify-full; for " +
			"no-verify write require")
	case namesNoSecret.MatchString(text):
		return errors.New("the URL cannot be used: " + text)
	}
	return errForm
}

// NotRunning tells whether an error of connecting means that no server listens at the address.
func NotRunning(err error) bool {
	var connect *pgconn.ConnectError
	var name *net.DNSError
	return errors.As(err, &connect) && (errors.As(err, &name) && name.IsNotFound ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT))
}

var passfile = regexp.MustCompile(`[?&\s]passfile=([^&\s]+)`)

// CheckFiles reports a password file of a URL or keyword/value string that cannot be read. ParseURL
// reads the other files that it names, and connections go on without this one.
func CheckFiles(text string) error {
	named := passfile.FindStringSubmatch(" " + CleanURL(text))
	if named == nil {
		return nil
	}
	path, err := url.QueryUnescape(strings.Trim(named[1], "'"))
	if err == nil {
		_, err = os.ReadFile(path)
	}
	return err
}
