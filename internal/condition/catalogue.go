package condition

// away is the one condition that is looked for where there is no database.
const away = "OBX-006"

// RightMissing is the condition of a login that lacks what a relay needs.
const RightMissing = "OBX-019"

// CanaryLost is the condition of a canary that has not arrived.
const CanaryLost = "OBX-052"

// unfitTable is the condition of a table that no relay can serve. outbox verify looks for it too.
const unfitTable = "OBX-018"

// audit is the category of what outbox verify alone looks for: it reads whole tables.
const audit Category = "audit"

// Catalogue is every condition. Ids are given once; a condition that goes takes its id with it.
var Catalogue = []Condition{
	{
		ID: "OBX-001", Name: "variable ignored", Category: "settings", Severity: Advice, Pre: true, check: ignored,
		Means: "A variable of the environment looks like a setting and is none, so what it was meant to set has " +
			"its default.",
		Remedy: "correct the variable's name: outbox config print lists all settings, where each comes from, and " +
			"what is in effect",
	},
	{
		ID: "OBX-002", Name: "duplicate window short", Category: "settings",
		Severity: Warning, Pre: true, check: windowShort,
		Means: "After the death of a relay a copy of what it had published can come later than sinks remember ids. " +
			"The copy is delivered.",
		Remedy: "raise --dedup-window to what the sentence says, or shorten --lease-ttl",
	},
	{
		ID: "OBX-003", Name: "routes that cannot be meant", Category: "settings",
		Severity: Advice, Pre: true, check: routesOdd,
		Means: "A route is behind another that takes all that it would, has a wildcard of a broker, or some events " +
			"of a table have none and become dead letters.",
		Remedy: "correct the routes: outbox route test --topic TOPIC says where an event goes",
	},
	{
		ID: "OBX-004", Name: "settings readable by others", Category: "settings",
		Severity: Warning, Pre: true, check: fileReadable,
		Means: "The file of the settings, or the database's, is readable by other users of this machine. " +
			"Passwords, tokens' hashes and payloads are in it.",
		Remedy: "chmod 600 the file, and a database's -wal and -shm too",
	},
	{
		ID: "OBX-005", Name: "few open files allowed", Category: "host", Severity: Advice, Pre: true, check: filesFew,
		Means: "Each stream, connection and sink is an open file. A process at its limit accepts no stream and " +
			"connects to nothing.",
		Remedy: "raise the limit: ulimit -n 65536, or LimitNOFILE= in the service's unit",
	},
	{
		ID: away, Name: "database away", Category: "database", Severity: Critical, Pre: true, check: databaseAway,
		Means: "Nothing can be read or recorded, so nothing is delivered. Events that applications commit are " +
			"safe; while they cannot commit there are none.",
		Remedy: "start the server, or correct --database (OUTBOX_DATABASE_URL); relays go on by themselves within " +
			"seconds",
	},
	{
		ID: "OBX-007", Name: "database read-only", Category: "database", Severity: Critical, Pre: true,
		judge: readOnly,
		Means: "The server is a standby, or takes no writes of this role. A relay can hold no lease and record " +
			"nothing.",
		Remedy: "connect to the primary, or ALTER ROLE, DATABASE or SYSTEM RESET default_transaction_read_only",
	},
	{
		ID: "OBX-008", Name: "connections run out", Category: "database",
		Severity: Critical, Pre: true, check: query("condition_connections"),
		Means: "A relay that restarts, and every application, needs a connection that the server will refuse.",
		Remedy: "raise max_connections or the limit of the role or database, close what is idle, or put a pooler in " +
			"between",
	},
	{
		ID: "OBX-009", Name: "vacuum held back", Category: "database",
		Severity: Critical, Pre: true, check: query("condition_vacuum_held"),
		Means: "An old snapshot keeps vacuum from removing row versions that nobody needs any more. Claims read " +
			"through them and become slower by the hour.",
		Remedy: "end the transaction that the sentence names",
	},
	{
		ID: "OBX-010", Name: "dead rows", Category: "database", Severity: Advice, check: query("condition_dead_rows"),
		Means:  "A table has more row versions to be vacuumed than rows. Every claim and every index pays for them.",
		Remedy: "look for OBX-009 and OBX-011 first, then VACUUM the table",
	},
	{
		ID: "OBX-011", Name: "autovacuum off", Category: "database", Severity: Advice, Pre: true,
		check: query("condition_autovacuum"),
		Means: "Nobody removes old row versions of a table that changes all the time.",
		Remedy: "ALTER TABLE … RESET (autovacuum_enabled), or ALTER SYSTEM SET autovacuum = on and SELECT " +
			"pg_reload_conf()",
	},
	{
		ID: "OBX-012", Name: "clocks apart", Category: "database", Severity: Warning, Pre: true,
		check: query("condition_clocks"),
		Means: "The database's clock, by which leases and retries go, is not this machine's, by which latencies " +
			"are measured and certificates end.",
		Remedy: "run a time service (chrony, systemd-timesyncd) on both machines",
	},
	{
		ID: "OBX-013", Name: "database without TLS", Category: "database",
		Severity: Warning, Pre: true, check: plaintext,
		Means:  "Passwords, tokens' hashes and payloads cross the network for whoever is on the way.",
		Remedy: "put sslmode=verify-full and sslrootcert=FILE into the database's URL",
	},
	{
		ID: "OBX-014", Name: "pooler in between", Category: "database", Severity: Advice, Pre: true, check: pooled,
		Means: "A pooler that lends sessions lets nobody listen, so a relay finds new events by polling: later by " +
			"up to --poll-max.",
		Remedy: "give relays the URL of PostgreSQL itself where latency matters",
	},
	{
		ID: "OBX-015", Name: "role may do everything", Category: "database",
		Severity: Advice, Pre: true, check: query("condition_superuser"),
		Means: "A superuser, and a role with BYPASSRLS, sees all tenants and may drop what it serves. A mistake of " +
			"a relay's host is a mistake of the database's.",
		Remedy: "make the roles with outbox migrate roles, and give the relay a login that has outbox_relay",
	},
	{
		ID: "OBX-016", Name: "disk nearly full", Category: "database", Severity: Warning, Pre: true, check: diskLow,
		Means: "A full file system ends all writing into the database's file: producers fail, and nothing that is " +
			"delivered can be recorded.",
		Remedy: "free space, shorten --retention, and then outbox purge",
	},
	{
		ID: "OBX-017", Name: "migrations missing", Category: "schema", Severity: Critical, Pre: true,
		judge: schemaOutdated, check: migrations,
		Means: "The database's tables are older than this program, or a migration has stopped half way. What needs " +
			"the newer ones fails.",
		Remedy: "run outbox migrate up; outbox migrate status says what that would do",
	},
	{
		ID: unfitTable, Name: "table unfit", Category: "schema", Severity: Critical, Pre: true,
		check: opening(unfit, errNothing),
		Means: "A table that the settings name does not exist or lacks a column of its layout, or its positions or " +
			"transaction numbers do not rise, which happens when a switch-over or a restore leaves sequences " +
			"behind. No relay delivers its events.",
		Remedy: "run the statement that the sentence names, or outbox migrate up, or correct --table and the layout",
	},
	{
		ID: RightMissing, Name: "right missing", Category: "schema", Severity: Critical, Pre: true,
		check:  opening(forbidden, errObserver),
		Means:  "This role may not read or settle a table. With a relay's settings: nothing of it is delivered.",
		Remedy: "grant what the sentence names, or run outbox migrate roles and use a login that has outbox_relay",
	},
	{
		ID: "OBX-020", Name: "rows hidden", Category: "schema", Severity: Critical, Pre: true,
		check: opening(hidden, errNothing),
		Means: "Row-level security hides a table's rows from this role. A relay would see an empty table and " +
			"deliver nothing, without any error.",
		Remedy: "give the relay a login that has outbox_relay, whose policy shows it all tenants' rows",
	},
	{
		ID: "OBX-021", Name: "index missing", Category: "schema", Severity: Critical, Pre: true,
		check:  query("condition_index_missing"),
		Means:  "Without the index of undelivered rows every claim reads the whole table, and more of it every day.",
		Remedy: "make the index that the sentence names",
	},
	{
		ID: "OBX-022", Name: "index invalid", Category: "schema", Severity: Advice, Pre: true,
		check:  query("condition_index_invalid"),
		Means:  "An index whose making was broken off is paid for by every write and used by no query.",
		Remedy: "DROP INDEX CONCURRENTLY, then make it again",
	},
	{
		ID: "OBX-023", Name: "sink unreachable from here", Category: "sinks",
		Severity: Critical, Pre: true, check: sinkUnreachable,
		Means:  "This process cannot connect to a sink of the settings. Whether relays elsewhere can, OBX-027 tells.",
		Remedy: "start the server, open the way to it, or correct the URL in --sink",
	},
	{
		ID: "OBX-024", Name: "sink loses what it takes", Category: "sinks",
		Severity: Warning, Pre: true, check: sinkWeak,
		Means:  "A server answers, and its set-up may lose messages it has confirmed, or what it remembers of ids.",
		Remedy: "change the server's setting that the sentence names",
	},
	{
		ID: "OBX-025", Name: "sink without TLS", Category: "sinks", Severity: Warning, Pre: true, check: sinkPlaintext,
		Means:  "Passwords and payloads cross the network for whoever is on the way.",
		Remedy: "make the sink's URL one with TLS",
	},
	{
		ID: "OBX-026", Name: "certificate ends", Category: "sinks",
		Severity: Critical, Pre: true, check: certificateEnds,
		Means:  "When the certificate of the database or of a sink has ended, no relay can connect to it any more.",
		Remedy: "renew the server's certificate",
	},
	{
		ID: "OBX-027", Name: "sink down", Category: "sinks", Severity: Critical, judge: sinkDown,
		Means: "Relays cannot publish to a sink. Its events wait in their table; no attempt is counted and nothing " +
			"is lost.",
		Remedy: "bring the sink back: delivery goes on by itself within seconds, in order",
		Alert:  "OutboxSinkDown",
	},
	{
		ID: "OBX-028", Name: "sink owes", Category: "sinks", Severity: Warning, judge: ofQueues(deliveriesLate),
		Means: "A sink of a table with routes has not taken events that its other sinks have. They count as " +
			"delivered, and wait for this one.",
		Remedy: "outbox events --table TABLE --sink SINK says why each waits",
		Alert:  "OutboxSinkOwes",
	},
	{
		ID: "OBX-029", Name: "sink served by nobody", Category: "sinks", Severity: Critical, judge: ofQueues(unserved),
		Means:  "A sink owes events and no relay that is alive has a sink of that name.",
		Remedy: "start a relay whose settings have the sink, or outbox sinks move or forget what it owes",
		Alert:  "OutboxSinkUnserved",
	},
	{
		ID: "OBX-030", Name: "no relay", Category: "relays", Severity: Critical, judge: ofQueues(noReader),
		Means:  "No relay is alive that serves a table: its events wait, safe and undelivered.",
		Remedy: "start one: outbox relay",
		Alert:  "OutboxNoRelay",
	},
	{
		ID: "OBX-031", Name: "lanes held by nobody", Category: "relays",
		Severity: Critical, judge: ofQueues(lanesUnheld),
		Means: "Relays are alive and some lanes are nobody's, so the keys of those wait. After a relay's death " +
			"that lasts as long as its lease.",
		Remedy: "wait for the lease to end; if it lasts, read the relays' logs and look whether somebody holds rows " +
			"of outbox_lanes locked",
	},
	{
		ID: "OBX-032", Name: "relay hindered", Category: "relays", Severity: Critical, judge: relayHindered,
		Means:  "A relay that is alive says that it cannot serve a table, in the words of its /readyz.",
		Remedy: "repair what the message names; docs/operations/incidents.md lists the reasons",
		Alert:  "OutboxNotReady",
	},
	{
		ID: "OBX-033", Name: "relay alone", Category: "relays", Severity: Advice, judge: ofQueues(relayAlone),
		Means:  "When the only relay dies, its events wait until somebody starts another.",
		Remedy: "start a second relay with the same settings: they share the lanes, and each takes over from the other",
	},
	{
		ID: "OBX-034", Name: "lane under suspicion", Category: "relays", Severity: Warning,
		judge: ofQueues(laneSuspect),
		Means: "Relays died again and again at one lane, so its events are tried in small batches to find the one " +
			"that kills.",
		Remedy: "outbox events show ID of the event that the sentence names; outbox events skip ID " +
			"--yes --reason TEXT ends it",
	},
	{
		ID: "OBX-035", Name: "events late", Category: "events", Severity: Critical, judge: ofQueues(eventsLate),
		Means: "Events wait for longer than they should. A finding above this one usually names the cause. If events " +
			"arrive and the age is not plausible, the clock of a producer is wrong.",
		Remedy: "outbox why ID names what an event waits for; if the age is not plausible, correct the clock of the producer",
		Alert:  "OutboxLate",
	},
	{
		ID: "OBX-036", Name: "key blocked", Category: "events", Severity: Warning, judge: ofQueues(keyBlocked),
		Means: "An event fails, and what is behind it in its key waits, so that order holds. Other keys go on.",
		Remedy: "outbox events retry ID once the cause is gone, or outbox events skip ID --yes --reason TEXT to " +
			"give the event up",
	},
	{
		ID: "OBX-037", Name: "event parked", Category: "events", Severity: Warning, judge: ofQueues(eventParked),
		Means: "Somebody has set the next attempt of an event so far off that nobody waits for it. Its key waits " +
			"with it.",
		Remedy: "outbox events retry ID tries it now",
	},
	{
		ID: "OBX-038", Name: "outcome refused", Category: "events", Severity: Warning,
		check: queryTables("condition_refused"),
		Means: "An event was delivered, and the database refuses to record it: a trigger, a policy or a CHECK of " +
			"the table says no. It is not sent again; its key waits.",
		Remedy: "remove what refuses the UPDATE, then outbox events retry ID",
	},
	{
		ID: "OBX-039", Name: "delivery paused", Category: "events", Severity: Warning, judge: paused,
		Means:  "An operator has paused a table, a topic, a destination or a sink. What it holds back waits, in order.",
		Remedy: "outbox resume with the same names; outbox pauses lists them",
	},
	{
		ID: "OBX-040", Name: "one tenant crowds", Category: "events", Severity: Advice, check: tenantCrowds,
		Means: "Most of what waits is one tenant's. Others have their share of every claim, so they are hardly " +
			"slower.",
		Remedy: "outbox lanes --by tenant has the numbers; ask the tenant, or pause its topics",
	},
	{
		ID: "OBX-041", Name: "dead letters pending", Category: "letters", Severity: Warning, judge: deadLetters,
		Means:  "Events or jobs have failed for good. Nobody gets them unless somebody replays them.",
		Remedy: "outbox dlq stats groups them by cause; outbox dlq replay or discard ends them",
		Alert:  "OutboxDead",
	},
	{
		ID: "OBX-043", Name: "nothing is removed", Category: "letters", Severity: Advice, check: kept,
		Means: "A table keeps every delivered event for ever, and grows without end. Backups and index builds grow " +
			"with it.",
		Remedy: "set --retention for the table, or --settle TABLE=delete",
	},
	{
		ID: "OBX-044", Name: "retention stands still", Category: "letters",
		Severity: Warning, check: query("condition_retention", "outbox_maintenance"),
		Means:  "Old rows have not been removed for more than a day although a relay did so before.",
		Remedy: "look for retention in the relay's log; outbox purge does by hand what it would",
	},
	{
		ID: "OBX-045", Name: "subscription idle", Category: "consumers",
		Severity: Warning, judge: subscriptionIdle,
		Means: "A subscription has events, and no consumer asks for them or acknowledges them. The log keeps its rows " +
			"for as long, up to 30 days (outbox_subscriptions.keep).",
		Remedy: "start its consumer, or outbox subscriptions remove NAME if there is none any more",
	},
	{
		ID: "OBX-046", Name: "order broken", Category: audit, Severity: Critical,
		check: queryTables("condition_audit_order"),
		Means: "An event was passed by: one behind it in its key is delivered. No relay does that; somebody has " +
			"changed rows.",
		Remedy: "outbox audit, and the server's log, say who changed rows; outbox events skip ID --yes " +
			"--reason TEXT gives up what need not arrive",
	},
	{
		ID: "OBX-047", Name: "settled without outcome", Category: audit, Severity: Critical,
		check:  queryTables("condition_audit_settled"),
		Means:  "Rows say that they are delivered and not when, so retention and replay do not know them.",
		Remedy: "set the column of the time of delivery by hand, after finding out who left it empty",
	},
	{
		ID: "OBX-048", Name: "dead letter and row disagree", Category: audit, Severity: Critical,
		check: queryTables("condition_audit_dead"),
		Means: "An event is dead and nobody can find it among the letters, or a letter's event is gone and cannot " +
			"be put back.",
		Remedy: "UPDATE the row back to its first status, so that a relay tries it again",
	},
	{
		ID: "OBX-049", Name: "owed and undelivered", Category: audit, Severity: Critical,
		check:  queryTables("condition_audit_owed"),
		Means:  "A sink owes an event that a relay will publish again to all sinks: one of them gets it twice.",
		Remedy: "outbox events skip ID --sink SINK --yes --reason TEXT gives up what the sink owes",
	},
	{
		ID: "OBX-050", Name: "owed without a sink", Category: audit, Severity: Critical, check: owedToNobody,
		Means: "A sink owes events, and the settings given have no sink of that name. A relay with them will never " +
			"deliver those.",
		Remedy: "give verify the relay's settings, add the sink, or outbox sinks move or forget what it owes",
	},
	{
		ID: "OBX-051", Name: "lease without end", Category: audit, Severity: Critical,
		check:  query("condition_audit_leases"),
		Means:  "A relay's lease ends later than any relay asks for. If it dies, nobody takes over from it until then.",
		Remedy: "delete the relay's row in outbox_relays once it has stopped",
	},
	{
		ID: CanaryLost, Name: "canary lost", Category: audit, Severity: Critical, check: canary,
		Means:  "An event that was written to try the whole way was not delivered in time, or a sink still owes it.",
		Remedy: "outbox why ID of the event that the sentence names",
	},
	{
		ID: "OBX-053", Name: "versions differ", Category: "relays", Severity: Advice,
		check: query("condition_versions"),
		Means: "Relays, gateways or workers of several versions are connected to this database. If nobody is " +
			"upgrading, one was forgotten.",
		Remedy: "restart those of the other version: SELECT pid, client_addr, application_name FROM pg_stat_activity " +
			"says whose sessions they are",
	},
	{
		ID: "OBX-054", Name: "relays vanish", Category: "relays", Severity: Warning, judge: ofQueues(relaysVanish),
		Means: "Relays die, or lose the database, without giving up their lanes. Each time these wait until the " +
			"lease lapses.",
		Remedy: "read the logs of the relays that the sentence names, and of what starts them: memory, restarts, network",
	},
	{
		ID: "OBX-055", Name: "settings differ", Category: "relays", Severity: Warning, judge: ofQueues(sinksDiffer),
		check: settingsDiffer,
		Means: "The relays of a table do not have the same settings. Each relay delivers its own lanes, so two " +
			"events can be delivered under different settings. Different sinks or routes are a warning after 10 minutes, " +
			"a time that a deployment may need; this comparison includes relays of the library, whose sinks are compared " +
			"by name and Go type. Other settings are compared for the relays of the command only, and are a notice.",
		Remedy: "restart the relays that have the old settings; the last line of outbox config print has the digits " +
			"that a notice names",
	},
	{
		ID: "OBX-056", Name: "sink slow", Category: "sinks", Severity: Warning, judge: sinkSlow,
		Means: "The sink takes what it is sent, and takes long. Its events are late by as much, and a worker that " +
			"waits for it claims nothing else.",
		Remedy: "look at the sink's own metrics; a table with routes waits for it only for --route-timeout",
	},
	{
		ID: "OBX-057", Name: "memory of ids short", Category: "consumers", Severity: Warning, check: memoryShort,
		Means: "A consumer forgets the ids that it has handled while operators can still replay the events, whose " +
			"rows stay for longer. What is replayed then has its effect a second time.",
		Remedy: "give the consumer a longer Window (inbox.Config), or shorten --retention",
	},
	{
		ID: "OBX-058", Name: "objects of others", Category: "schema", Severity: Critical, Pre: true,
		check: query("condition_foreign_objects"),
		Means: "A foreign key, a trigger, a rule or a storage setting of an outbox table does not come from Outbox. " +
			"It can lose rows, refuse what a relay records, or keep old rows in the table.",
		Remedy: "remove it, or accept it and exclude this condition with --skip",
	},
	{
		ID: "OBX-059", Name: "lock held", Category: "database", Severity: Critical, judge: locked,
		Means: "A session holds a lock that another session waits for at an outbox table. While a relay waits, its events " +
			"are not delivered; while a producer waits, its transaction is not committed.",
		Remedy: "end the transaction of the blocking session",
	},
}
