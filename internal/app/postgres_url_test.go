package app

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Each form either opens the database or is refused with an error or hint that names the part at
// fault. HOST, PORT, DB and DIR stand for the server's. The hint about the server appears only where
// no server listens.
func TestDatabaseURLForms(t *testing.T) {
	t.Parallel()
	database := testenv.Database(t)
	parsed, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.Query()
	fill := strings.NewReplacer("ADDR", "postgres:s3cret@127.0.0.1:"+query.Get("port")+parsed.Path,
		"HOST", "127.0.0.1:"+query.Get("port"), "PORT", query.Get("port"), "DB", parsed.Path[1:], "DIR", query.Get("host"))
	const (
		inUser   = "the user or password in the URL contains % @ / ? # or a space"
		form     = "want postgres://user:password@host:5432/database"
		variable = "contains a variable that nothing has replaced"
		running  = "is PostgreSQL running there?"
		server   = "the server does not accept a parameter of the URL"
	)
	for text, want := range map[string]string{ // "": it opens
		"postgres://ADDR":   "",
		"postgresql://ADDR": "",
		"POSTGRES://ADDR":   "",
		// Prisma, node-postgres
		"postgres://ADDR?schema=public":                       "",
		"postgres://ADDR?schema=Shop":                         "",
		"postgres://ADDR?pgbouncer=true":                      "",
		"postgres://ADDR?connection_limit=1":                  "",
		"postgres://ADDR?statement_cache_size=0":              "",
		"postgres://ADDR?sslaccept=strict":                    "sslaccept is not supported; write sslmode=verify-full",
		"postgres://ADDR?uselibpqcompat=true&sslmode=disable": "",
		"postgres://ADDR?ssl=true":                            "server refused TLS connection",
		"postgres://ADDR?ssl=false":                           "the parameter ssl is not supported; write sslmode=disable",
		"postgres://ADDR?sslmode=no-verify":                   "for no-verify write require",
		"prisma+postgres://prisma-data.net/?api_key=s3cret":   "has the scheme prisma+postgres://, which",
		// libpq
		"postgres://ADDR?connect_timeout=10":                                      "",
		"postgres://ADDR?connect_timeout=10s":                                     "invalid connect_timeout",
		"postgres://ADDR?keepalives=1&keepalives_count=3":                         "",
		"postgres://ADDR?tcp_user_timeout=1000":                                   "",
		"postgres://ADDR?gssencmode=disable":                                      "",
		"postgres://ADDR?gssencmode=require":                                      "GSSAPI encryption is not",
		"postgres://ADDR?channel_binding=prefer":                                  "",
		"postgres://ADDR?channel_binding=require":                                 "channel binding required but",
		"postgres://ADDR?target_session_attrs=read-write":                         "",
		"postgres://ADDR?sslnegotiation=postgres":                                 "",
		"postgres://ADDR?requirepeer=postgres":                                    "requirepeer is not supported",
		"postgres://ADDR?sslrootcert=/no/such":                                    "open /no/such: no such file",
		"postgres://ADDR?options=-c%20jit%3Doff":                                  "",
		"postgres://ADDR?options=-c%20jit=off":                                    `"=" in URI query parameter: "options"`,
		"postgres://ADDR?statement_timeout=5x":                                    server,
		"postgres://ADDR?nonsense=1":                                              server,
		"host='127.0.0.1' port=PORT user=postgres password='s3 cret' dbname='DB'": "",
		"host=127.0.0.1 port=PORT user=postgres dbname=DB gssencmode=prefer":      "",
		"host=127.0.0.1;port=PORT;user=postgres;password=s3cret":                  form,
		"Host=127.0.0.1;Port=PORT;Username=postgres;Password=s3cret":              form,
		// JDBC, SQLAlchemy, Rails
		"jdbc:postgresql://HOST/DB?user=postgres&password=s3@cret&currentSchema=a,b": "",
		"jdbc:postgresql://u:12/s3cret@HOST/DB":                                      inUser,
		"jdbc:postgresql://ADDR?ApplicationName=shop&reWriteBatchedInserts=true":     "",
		"postgresql+asyncpg://ADDR?prepared_statement_cache_size=0":                  "",
		"postgresql+psycopg2://ADDR":                                                 "",
		"postgres+pool://ADDR?pool=5&prepared_statements=false":                      "",
		"postgres://ADDR?pool_max_conns=3":                                           "",
		// around the URL, and the password
		"\"postgres://ADDR\"":                 "",
		"'postgres://ADDR'":                   "",
		" postgres://ADDR\r\n":                "",
		"\"postgres://ADDR":                   form,
		"postgres://u:s3%cret@HOST/DB":        inUser,
		"postgres://u:s3#cret@HOST/DB":        inUser,
		"postgres://u:s3@cret@HOST/DB":        inUser,
		"postgres://u:12/s3cret@HOST/DB":      inUser,
		"postgres://u:s3?cret@HOST/DB":        inUser,
		"postgres://u:s3 cret@HOST/DB":        inUser,
		"postgres://postgres:s3[cret@HOST/DB": "",
		// hosts and databases
		"postgres://postgres:s3cret@HOST":                   "",
		"postgres://postgres:s3cret@HOST/nodb":              "correct user, password or database",
		"postgres://nouser:s3cret@HOST/DB":                  "correct user, password or database",
		"postgres://postgres:s3cret@127.0.0.1:1,ADDR":       inUser,
		"postgres://postgres:s3cret@127.0.0.1:1,HOST/DB":    "",
		"postgresql:///DB?host=DIR&port=PORT&user=postgres": "",
		"postgresql:///DB?host=/no/such&user=postgres":      running,
		"postgres://postgres:s3cret@127.0.0.1:1/d":          running,
		"postgres://postgres:s3cret@127.0.0.1:99999/d":      "invalid port",
		"postgres:postgres@h/d":                             form,
		// variables and other databases
		"":                                     form,
		"$DATABASE_URL":                        variable,
		"${DATABASE_URL}":                      variable,
		"postgres://u:${PGPASSWORD}@HOST/DB":   variable,
		"postgres://u:s3cret@HOST/$(DATABASE)": variable,
		"mysql://u:s3cret@h/d":                 "has the scheme mysql://, which is not supported: " + form,
		"mongodb+srv://u:s3cret@h/d":           "has the scheme mongodb+srv://, which",
		"file:x.db?mode=ro":                    "has the scheme file:, which",
		"sqlite3:///x.db":                      "has the scheme sqlite3://, which",
		"sqlite+aiosqlite:///x.db":             "or sqlite:outbox.db for a file",
		"sqlite:x.db?mode=ro":                  "options such as mode=ro are not taken",
		"x.db":                                 form,
	} {
		text = fill.Replace(text)
		err := CheckDatabase(text)
		if err == nil {
			var db Database
			if db, err = OpenDatabase(t.Context(), text); err == nil {
				db.Close()
			}
		}
		says := ""
		if err != nil {
			says = err.Error() + "; " + Hint(err)
		}
		if want == "" && err != nil || want != "" && !strings.Contains(says, want) ||
			want != running && strings.Contains(says, running) {
			t.Errorf("%q: got %q, want %q", text, says, want)
		}
		if shown := fmt.Sprint(says, MaskDatabase(text), databases{}.Show(text)); strings.Contains(shown, "cret") {
			t.Errorf("%q: the password is shown: %s", text, shown)
		}
	}
}

func TestSchemaOfOtherClientsSetsSearchPath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://h/d?schema=Shop":              `"Shop"`,
		"postgres://h/d?schema=public":            "",
		"jdbc:postgresql://h/d?currentSchema=a,b": "a,b",
		"postgres://h/d?schema=a&search_path=b":   "b",
		"host=h dbname=d schema=a":                `"a"`,
	} {
		cfg, ignored, err := pooler.ParseURL(text)
		if err != nil || len(ignored) > 0 || cfg.ConnConfig.RuntimeParams["search_path"] != want {
			t.Errorf("%s: got %v, %v, %v, want %s", text, cfg.ConnConfig.RuntimeParams, ignored, err, want)
		}
	}
}
