.DEFAULT_GOAL := help
.PHONY: help deps servers test test-full test-all test-database suite lint vuln build bench bench-peers bench-quick bench-report orms migrators readers clients image containers charts fuzz chaos soak versions storm snapshot snapshot-log ui openapi release packages

FUZZTIME ?= 20s

# Compiled from source: 78 s with a cold cache on 2 cores (measured), and nothing on later runs, since it stays in bin/.
# As a tool in go.mod it would bring some 200 modules into the file that says what this library needs.
GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
ACTIONLINT := bin/actionlint-v1.7.12
NFPM := bin/nfpm-v2.45.0
SBOM := bin/cyclonedx-gomod-v1.10.0

# The server of the tests: 14, 16, 17 or 18, or the folder of its programs. Without it the one that is installed, 15 on Debian 12.
ifdef POSTGRES
export OUTBOX_TEST_POSTGRES := $(POSTGRES)
endif

# The tier of internal/test/tier that these targets run.
test-database suite: export OUTBOX_TEST_TIER := full
packages containers clients readers orms migrators chaos soak versions storm snapshot snapshot-log: export OUTBOX_TEST_TIER := all

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install PostgreSQL, PgBouncer, Redis, Chromium, promtool and a C compiler where they are missing (apt-get)
	@bash scripts/deps.sh

servers:
	@bash scripts/deps.sh servers

# As Debian's packages have it: python3-psycopg, mypy, python3-hatchling.
PYTHON ?= /usr/bin/python3

# What another version of the server can change first: the schema and the plans. DATABASE=. is all of these packages.
DATABASE ?= TestUpFrom|TestUpDown|TestUpOn|TestDown|TestPrinted|TestChecks|TestUUID|TestExported|TestStatus|TestPurge|Plan|Index|TestWrite

test: deps ## vet and the tests of every package on real servers, in six minutes (see internal/test/tier)
	@bash scripts/test.sh test

test-full: deps ## the tests that take longer: the race detector everywhere, traces, plans, integration, the core of the faults
	@bash scripts/test.sh full
	@for version in 14 16 17 18; do \
		if bash scripts/postgres.sh $$version; then $(MAKE) test-database POSTGRES=$$version || exit 1; \
		else echo "make test-database POSTGRES=$$version: NOT RUN, its programs cannot be fetched"; fi; \
	done

test-all: deps ## every test: all faults, installation, packages, charts, containers, clients, migrators, readers, storms
	@bash scripts/deps.sh packages
	@bash scripts/test.sh all
	$(MAKE) charts containers clients migrators readers orms
	$(MAKE) soak storm MINUTES=5

test-database: servers ## the tests of the schema and the plans, e.g. with POSTGRES=18; DATABASE=. for all of the store
	go test -vet=off -p 1 -timeout 10m -run '$(DATABASE)' ./internal/store/pgmigrations ./internal/store/pgcold ./store/postgres ./server/pgstore

suite: servers ## outboxtest.StoreSuite, and the server's, on PostgreSQL and SQLite, side by side
	@bash scripts/suite.sh

lint: $(GOLANGCI) $(ACTIONLINT) ## static checks of .golangci.yml, and of the workflows
	$(GOLANGCI) run ./...
	$(ACTIONLINT)

$(GOLANGCI): TOOL := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(ACTIONLINT): TOOL := github.com/rhysd/actionlint/cmd/actionlint
$(NFPM): TOOL := github.com/goreleaser/nfpm/v2/cmd/nfpm
$(SBOM): TOOL := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
$(GOLANGCI) $(ACTIONLINT) $(NFPM) $(SBOM):
	GOBIN="$(CURDIR)/bin" go install $(TOOL)@$(subst bin/$(notdir $(TOOL))-,,$@)
	mv bin/$(notdir $(TOOL)) $@

release: $(NFPM) $(SBOM) ## archives, .deb, .rpm, SBOMs and checksums of VERSION into dist; TARGETS="linux/amd64" for a part; nothing is published
	bash scripts/release.sh

# Not a step of .ci/run: it builds two releases, and installs them into a Debian that it makes with mmdebstrap.
packages: $(NFPM) $(SBOM) ## a release for this machine, installed, started, killed, upgraded under load, removed; signed; built twice; needs root
	@bash scripts/deps.sh packages
	go test -vet=off -count=1 -v -timeout 60m ./internal/test/install/packages

# Not a step of .ci/run: it needs vuln.go.dev, which the machines of CI do not reach.
vuln: ## known vulnerabilities of the dependencies, with govulncheck; needs a network that reaches vuln.go.dev
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

# Not a step of .ci/run: npm is asked for what it runs.
ui: ## the operator's page (ui/dist) from its sources, and whether it is what is committed; needs node 20.19 or later, and npm
	@bash scripts/ui.sh

openapi: ## the gateway's OpenAPI document by the rules of Redocly and Spectral; needs node 20 or later, and npm
	@bash scripts/openapi.sh

image: ## the container image of the last commit for amd64 and arm64, as an OCI layout in dist/image
	@bash scripts/image.sh

# Not a step of .ci/run: it links the program four times. A module of its own.
containers: servers ## the container image, made twice, and a relay of it as its user on a read-only file system; as root
	go -C deploy/image vet ./...
	go -C deploy/image test ./...

build: ## the outbox command, as bin/outbox
	go build -o bin/outbox ./cmd/outbox

bench: servers ## everything that is measured, beside the peers, and docs/benchmarks.md from it; bench is a module of its own
	cd bench && go run . -out results all && go run . report

bench-peers: servers ## of these, what docs/benchmarks.md is generated from: drain, latency and producers beside the peers
	cd bench && go run . -out results peers && go run . report

bench-quick: servers ## the same in less than three minutes, printed only: it shows that it runs, and figures of one round
	cd bench && go run . -rows 10000 -rounds 1 -seconds 4 -writing 500ms peers

bench-report: ## docs/benchmarks.md and its plots from bench/results, and whether they are what those say
	cd bench && go run . report && go test .

# Not a step of .ci/run: a module of its own, whose generator alone takes minutes to compile the first time.
orms: servers ## GORM, ent, sqlx, bun and sqlc write events in their transactions, on a real server (examples/orm)
	go -C examples/orm generate ./...
	go -C examples/orm vet ./...
	go -C examples/orm test ./...

# Not a step of .ci/run: compiling Atlas takes longer than its tests. Modules of their own, so that goose, Atlas and Encore are in nobody's go.sum.
migrators: servers ## goose and Atlas apply what `outbox migrate export` writes, and the Encore example (examples/migrate, examples/encore)
	go -C examples/migrate vet ./...
	go -C examples/migrate test ./...
	go -C examples/encore vet ./...
	go -C examples/encore test ./...

# Not a step of .ci/run: npm and apt are asked for what it runs.
readers: servers ## kafkajs, kcat, sarama and Watermill's subscribers read what the sinks send (examples/readers); needs node and kcat
	npm --prefix examples/readers/kafkajs ci --no-audit --no-fund
	go -C examples/readers vet ./...
	go -C examples/readers test ./...

# Not a step of .ci/run: npm and apt are asked for what it runs.
clients: servers ## the packages for TypeScript and Python against a gateway that is killed (clients); needs node 20, npm, and Python with psycopg, mypy and hatchling
	npm --prefix clients/typescript ci --no-audit --no-fund
	npm --prefix clients/typescript run build
	npm --prefix clients/typescript run check
	cd clients/python && $(PYTHON) -m mypy
	go -C clients vet ./...
	go -C clients test -timeout 30m ./...

charts: ## the Helm chart, the manifests made from it and the compose file, read strictly; a module of its own, which takes minutes to compile
	go -C internal/test/chart vet ./...
	go -C internal/test/chart test -vet=off -count=1 ./...

# One at a time: `go test -fuzz` takes a single target of a single package.
fuzz: servers ## every fuzz target for FUZZTIME (20s)
	@grep -rEo --include='*_test.go' --exclude-dir=bench '^func Fuzz[A-Za-z0-9_]*' . | sed 's/func //' | sort | \
	while IFS=: read -r file target; do \
		echo "$$target ($$file)"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

# Not `go test`, which would print nothing until the end. SEED repeats the choices of an earlier run.
bin/chaos.test: FORCE
	@go test -c -o $@ ./internal/test/chaos

FORCE:

SEED ?= 0
MINUTES ?= 10

chaos: servers bin/chaos.test ## the table of faults, one line each; SEED=n for the choices of an earlier run, LONG=1 for full sizes
	@cd internal/test/chaos && ../../../bin/chaos.test -test.run '^Test([A-Za-z]*Chaos|SQLite.*)$$' -test.timeout 60m \
		$(if $(LONG),-long) -seed $(SEED)

soak: servers bin/chaos.test ## random kills of relays, PostgreSQL and Redis under 1000 events/s for MINUTES (10)
	@cd internal/test/chaos && ../../../bin/chaos.test -test.run '^TestSoak$$' -test.timeout 0 -soak $(MINUTES)m -seed $(SEED)

BEFORE ?= HEAD~1

versions: servers ## an upgrade from the commit BEFORE (HEAD~1) and its way back, with relays of both beside each other under load
	@bash scripts/versions.sh $(BEFORE)

SOURCE ?=

storm: RATE := 1000
storm: servers ## every process and server between a producer and an effect killed in turn under RATE (1000) events/s for MINUTES (10), of SOURCE (kafka, nats, rabbitmq, redis, webhook; each)
	go test -vet=off -count=1 -v -parallel 1 -timeout 0 -run 'TestEffectsOnce/$(SOURCE)' ./internal/test/sources -storm $(MINUTES)m -rate $(RATE)

snapshot: servers bin/chaos.test ## what a REPEATABLE READ session left open for MINUTES (10) does to the queue
	@cd internal/test/chaos && ../../../bin/chaos.test -test.run '^TestSnapshotHeld$$' -test.timeout 0 -soak $(MINUTES)m -seed $(SEED)

RATE ?= 2000

snapshot-log: servers bin/chaos.test ## the same of a log at RATE (2000) events/s, with late commits: docs/benchmarks/snapshot-log.svg and .json
	@cd internal/test/chaos && ../../../bin/chaos.test -test.run '^TestSnapshotHeldOnLog$$' -test.timeout 0 -soak $(MINUTES)m -rate $(RATE) \
		-out ../../../docs/benchmarks/snapshot-log -seed $(SEED)
