package arch

// A layer may import layers with a lower rank, and its own subtree; never a neighbour of the same
// rank. The server stands above the whole library, which cannot reach it (`unreached`).
//
//	cmd → internal/cli → internal/app → server → {store/*, sink/*}
//	    → {relay, eventbus, deadletter, sink} → outbox → std
type layer struct {
	folder string // of the repository; "/*": each folder below is a part of its own, not allowed to see its neighbours
	rank   int
	reason string
}

const appRank = 10

// layers name every folder that may hold Go code. A new one fails the test until it is given its
// place here.
var layers = []layer{
	{"internal/fault", 0, "fault points sit in the engine, so they can know nothing of it"},
	{"internal/sink/cloudevent", 2, "headers of a message, for any sink whose transport has them"},
	{"internal/store/sqlfile", 0, "fills names into SQL; which table they are of, the store knows"},
	{"internal/store/errortext", 0, "how errors fit a column; of which table it is, the store knows"},
	{"internal/store/sqlitetime", 0, "how times are text; of which table they are, the store knows"},
	{"internal/sink/dedup", 0, "how long copies are refused, in sinks that remember and in the command's settings"},
	{"internal/version", 0, "whatever names itself to a server asks it"},
	{"internal/backoff", 0, "waits, which a context ends"},
	{"internal/sink/late", 0, "what a relay and a sink say to each other beside outbox.Sink"},
	{"internal/store/identifier", 0, "names in SQL; what has them, it does not know"},
	{"internal/store/uuid7", 0, "when an id was drawn, whatever it is of"},
	{"internal/sink/rounds", 2, "order and size of calls that fail as a whole, for any sink that makes them"},
	{"internal/sink/sinkurl", 2, "how a URL is read and shown, for any driver, and for errors of stores"},
	{"internal/test/testenv", 1, "starts servers for anybody's tests, so it can know nobody"},
	{"internal/test/tier", 0, "selects tests of any package, so it imports none"},
	{"internal/arch", 0, "reads source, runs none"},
	{".", 1, "package outbox: the vocabulary, everything else is built on it"},
	{"relay", 2, "the loop; which database and which broker, it does not know"},
	{"eventbus", 2, "the rows of an event bus, whichever store has it"},
	{"internal/store/migration", 2,
		"what every store knows of the migration sets, so that a store and what is above it need not name each other"},
	{"internal/store/pause", 2, "names that operators paused; in which database they stand, it does not know"},
	{"internal/store/eventrow", 2,
		"what every writer does before its INSERT; which database that is for, it does not know"},
	{"internal/store/operate", 4, "what operators see and do in any database, through internal/store/cold"},
	{"internal/test/tabletest", 2, "fills tables of any store under test, so it can name none"},
	{"internal/store/sqltx", 2, "what a transaction of database/sql is, for the stores; its error is package outbox's"},
	{"inbox/group", 4, "a relay whose sink is a function; which database it has, it does not know"},
	{"inbox", 2, "works on an interface that a store fulfils, not on a store"},
	{"source", 4, "messages become rows; which broker and which database it is, it does not know"},
	{"source/*", 5, "a user of one broker does not compile the others, nor a database"},
	{"deadletter", 2, "works on an interface that a store fulfils, not on a store"},
	{"internal/store/retention", 4, "how rows grow old in any database, through internal/store/cold"},
	{"internal/store/replayplace", 3, "where a page ended, for any store of letters"},
	{"internal/store/busevent", 4, "the event bus of any database, through internal/store/cold"},
	{"internal/store/pooler", 2, "what a connection leads to; store/postgres asks, and its migrations"},
	{"internal/store/pgmigrations", 3,
		"the schema, and all that the command does with it; a user of it compiles no store"},
	{"internal/store/sqlitemigrations", 3, "as internal/store/pgmigrations, in SQLite"},
	{"internal/store/pgschema", 3,
		"what a PostgreSQL database has; both stores on it ask, the library's and the server's"},
	{"internal/store/sqlitefile", 2, "the driver's names and errors; the stores, and what the command reads, ask it"},
	{"internal/store/pgtable", 3, "what the stores of relays and of operators both know of a table in PostgreSQL"},
	{"internal/store/sqlitetable", 3, "as internal/store/pgtable, in SQLite"},
	{"internal/store/sqltable", 2, "a layout and its values in any SQL; which database it is, it does not know"},
	{"internal/store/cold", 3, "what is asked now and then; which database it is, it does not know"},
	{"internal/store/seen", 4, "what an inbox keeps in any database, through internal/store/cold"},
	{"internal/store/letters", 4, "the letters of any database, through internal/store/cold"},
	{"internal/store/pgcold", 4, "PostgreSQL as internal/store/cold asks it"},
	{"internal/store/sqlitecold", 4, "SQLite as internal/store/cold asks it"},
	{"internal/sink/redisscript", 3, "what the sinks on Redis share: the script, its rounds and the URLs of a server"},
	{"store/*", 5, "a user of one store does not compile the others, nor any sink"},
	{"sink/*", 5, "a user of one broker does not compile the others, nor a database"},
	{"sink", 2, "how any sink is opened by its URL, so it can know none"},
	{"internal/sink/sinks", 3, "the command's way to a driver; which there are, internal/app says"},
	{"outboxtest", 5, "suites that run against any store or sink, so they can name none"},
	{"internal/test/operatetest", 6, "a suite that runs against any database, so it can name none"},
	{"internal/test/redistest", 5, "what is asked of any sink on Redis, so it can name none"},
	{"internal/test/sinktest", 4, "what is asked of any sink and driver, so it can name none"},
	{"internal/test/inboxtest", 3, "a suite that runs against any inbox, so it can name none"},
	{"internal/test/grouptest", 6, "a suite that runs against any database, so it can name none"},
	{"internal/test/tracetest", 6, "runs of relays on any database, for the model, so it can name none"},
	{"internal/test/model", 0, "the protocol by itself; it knows no code"},
	{"internal/test/pgtest", 6, "store/postgres as the suites ask for it"},
	{"internal/test/sqlitetest", 6, "as internal/test/pgtest, for store/sqlite"},
	{"contrib/*", 6, "joins a store to a program that is not ours; a user of one compiles no other"},
	{"server/crawl", 5, "one application of the outbox; HTTP is the gateway's"},
	{"server/stream", 5,
		"history, then live, for any number of readers; works on interfaces that a store and a broker fulfil"},
	{"server/subscription", 5, "who waits for events of a subscription; works on an interface that a store fulfils"},
	{"server/token", 5, "who may use the API; works on an interface that a store fulfils"},
	{"server/sse", 5, "the wire format of Server-Sent Events; std only"},
	{"server/gateway", 7, "reads through interfaces; which store is behind them is decided in internal/app"},
	{"server/store", 6, "the server's tables, through interfaces of crawl and token; asks any database"},
	{"server/pgstore", 7, "PostgreSQL as server/store asks it"},
	{"server/sqlitestore", 7, "as server/pgstore; a user of one does not compile the other"},
	{"server/storetest", 7, "a suite that runs against any store of the server, so it can name none"},
	{"internal/config", 7, "settings of the layers below, without building any of them"},
	{"internal/metrics", 9, "watches the layers below; they know an interface of package outbox, not Prometheus"},
	{"internal/app", appRank, "the only place that sees every store and broker"},
	{"internal/admin", 9, "what operators see and do, whichever database it is; the commands and the API ask it"},
	{"ui", 0, "the operators' page as files; what it asks, the browser asks"},
	{"internal/condition", 8, "what can be wrong, whichever database and broker it is"},
	{"ui", 0, "files of a page; what serves the data beside it, they do not know"},
	{"internal/dev", 11, "outbox dev around the parts of app: a page, a status, and whose a file is"},
	{"internal/cli", 12, "commands and flags; builds nothing itself"},
	{"command", 13, "the command for who adds a sink of his own: one function"},
	{"cmd", 14, "main and nothing else"},
	{"examples", 14, "as a user would write them"},
	{"internal/test/chaos", 13, "as internal/test/integration, with faults"},
	{"internal/test/conditions", 13, "what can be wrong, on real servers"},
	{"internal/test/sources", 13, "every source with its server, and what is killed of them"},
	{"internal/test/install", 13, "what is installed, whichever way"},
	{"internal/test/integration", 13, "tests that need several servers at once"},
}

// External imports of a folder, where the layering alone does not say enough.
var mayImport = []struct {
	folder  string
	modules []string // besides the standard library and this module
	reason  string
}{
	{".", []string{"github.com/google/uuid"},
		"whoever imports outbox pays for all it imports; UUIDv7 is not in the standard library"},
	{"relay", []string{"github.com/google/uuid"}, "whoever embeds a relay pays for all it imports"},
	{"internal/fault", nil, "is compiled into the library"},
	{"server/sse", nil, "a format of a page needs no library, and readers of a stream may want it alone"},
}

// importers are the only folders that may import another, whatever the ranks say; "/*": those below
// it, and not itself.
var importers = []struct {
	folder    string
	importers []string
	reason    string
}{
	{"sink/*", []string{"internal/app", "examples", "internal/test/integration", "internal/test/sources"},
		"one place decides which broker is served; adding one touches no other code"},
	{"relay", []string{"internal/app", "internal/config", "internal/metrics", "outboxtest", "inbox/group",
		"internal/test/grouptest", "internal/test/tracetest", "internal/test/operatetest", "internal/test/integration",
		"internal/test/sources", "examples"},
		"producers, stores and sinks compile no engine"},
	{"internal/test/testenv", nil, "needs servers on the machine and testing in the binary"},
}

// payers say who may reach a module at all, through any chain of imports and including the tests
// beside a package: those of a package that a user imports end up in his go.sum. Measured with a
// test beside store/postgres that reaches go-redis through internal/test/testenv: 8 lines. Folders
// above internal/app's rank may reach everything.
var payers = []struct {
	module  string
	folders []string
	reason  string
}{
	{"github.com/redis/go-redis", []string{"sink/redispubsub", "sink/redisstream", "internal/sink/redisscript",
		"internal/test/redistest", "source/redisstream"},
		"broker client"},
	{"github.com/twmb/franz-go", []string{"sink/kafka", "source/kafka"}, "broker client"},
	{"github.com/klauspost/compress", []string{"sink/kafka", "sink/natsjs", "source/kafka", "source/natsjs"},
		"what their clients compress with"},
	{"github.com/pierrec/lz4", []string{"sink/kafka", "source/kafka"}, "what franz-go compresses with"},
	{"github.com/nats-io/nats.go", []string{"sink/natsjs", "source/natsjs"}, "broker client"},
	{"github.com/nats-io/nats-server", []string{"sink/natsjs"}, "a whole broker, in tests only"},
	{"github.com/rabbitmq/amqp091-go", []string{"sink/rabbitmq", "source/rabbitmq"}, "broker client"},
	{"code.dny.dev/ssrf", []string{"sink/webhook"}, "refuses inner networks"},
	{"github.com/standard-webhooks/standard-webhooks", []string{"sink/webhook", "source/webhook"},
		"verifies signatures; the sink's in tests"},
	{"github.com/danielgtaylor/huma", []string{"server/gateway", "internal/admin"}, "HTTP API"},
	{"github.com/go-json-experiment/json", []string{"server/gateway", "internal/admin"}, "HTTP API"},
	{"github.com/rs/cors", []string{"server/gateway", "internal/admin"}, "HTTP API"},
	{"modernc.org/sqlite",
		[]string{"store/sqlite", "server/sqlitestore", "internal/store/sqlitefile", "internal/store/sqlitemigrations",
			"internal/store/sqlitecold", "internal/test/sqlitetest", "internal/admin"},
		"an SQLite in Go, 5 MB of a binary"},
	{"github.com/riverqueue/river", []string{"contrib/river"}, "job runner"},
	{"go.opentelemetry.io/otel", []string{"contrib/otel"}, "spans; who makes none compiles none"},
	{"github.com/lib/pq", nil, "another driver that producers use, in tests"},
	{"github.com/tmaxmax/go-sse", nil, "reads our streams, in the command and in tests"},
	{"github.com/spf13/cobra", nil, "the command's"},
	{"github.com/prometheus/client_golang", []string{"internal/metrics"}, "the command's"},
	{"github.com/coreos/go-systemd", nil, "the command's"},
}

// unlinked are packages that an importer of the library must not get into his program, through any
// chain of imports.
var unlinked = []struct {
	packages []string
	folders  []string // each alone; what is below it has a line of its own
	reason   string
}{
	{[]string{"text/template", "html/template"},
		[]string{".", "eventbus", "deadletter", "store/postgres", "store/postgres/migrations", "store/sqlite",
			"store/sqlite/migrations", "outboxtest", "sink/memory"},
		"it calls methods by their names, so the linker keeps every exported method of the whole program: megabytes in " +
			"each program that writes an event (internal/store/sqlfile)"},
}

// unreached are folders of this module that others must not reach, through any chain of imports and
// including the tests beside a package: an application is built on the library and never the other
// way round.
var unreached = []struct {
	folder string   // and all below it
	from   []string // with all below each
	reason string
}{
	{"server", []string{".", "eventbus", "deadletter", "store", "sink", "outboxtest", "contrib"},
		"who imports the library compiles no crawler, no tokens and no HTTP server, and reads none of their documentation"},
}

// freshContexts are folders outside main packages and tests that may call context.Background or
// context.TODO.
var freshContexts = map[string]string{
	"internal/test/testenv": "cleans up after a test whose own context has ended",
}

const (
	maxLines    = 600 // of a file that is no test
	medianLines = 150
	maxProse    = 100 // columns of a comment's line, a tab being four; what is indented as code is as it is
	maxColumns  = 120 // of a line, tabs counted as one; statements of SQL and texts in raw strings are as they are
)
