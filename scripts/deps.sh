#!/usr/bin/env bash
# Installs what the tests need and Go does not bring: the programs they start for themselves (internal/test/testenv), PostgreSQL, PgBouncer, Redis,
# RabbitMQ, libfaketime, Chromium and promtool, and the C compiler behind `go test -race`. Does nothing where they are. Run as `make deps`. Chromium is the
# biggest: 124 MB in 25 packages, installed in 9 s on 2 cores near a mirror (measured). `deps.sh servers` leaves it out: only the tests need it.
# `deps.sh packages` has mmdebstrap, rpm and systemd-analyze beside the servers.
#
# The services that Debian's packages start on the default ports are neither used nor touched: tests run their own servers,
# as user postgres when we are root, on sockets and ports of their own. RabbitMQ's service is not even started: it takes 150 MB.
set -euo pipefail
wanted=${1:-all}
extra=()

# Looks where internal/test/testenv/find.go looks: on PATH, then where packages put programs that are not on it.
have() {
	command -v "$1" >/dev/null 2>&1 && return
	local found
	for found in /usr/lib/postgresql/*/bin/"$1" /usr/pgsql-*/bin/"$1" /opt/homebrew/opt/postgresql*/bin/"$1" \
		/usr/local/opt/postgresql*/bin/"$1" /opt/homebrew/bin/"$1" /usr/local/bin/"$1" /usr/sbin/"$1"; do
		[ -x "$found" ] && return
	done
	return 1
}

have_browser() {
	[ "$wanted" = servers ] && return
	local name
	for name in chromium google-chrome google-chrome-stable chromium-browser; do
		have "$name" && return
	done
	return 1
}

# Where internal/test/testenv/clock.go looks. It is preloaded and never run, so it is on no PATH.
have_faketime() {
	local found
	for found in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib64/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1; do
		[ -e "$found" ] && return
	done
	return 1
}

# Where internal/test/testenv/rabbitmq.go looks: what is on PATH is Debian's wrapper for user rabbitmq.
have_rabbitmq() {
	{ [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || have rabbitmq-server; } && have epmd
}

# What packages are made in and looked at with: a Debian of their own, rpm, and systemd's own opinion of the unit.
if [ "$wanted" = packages ]; then
	have mmdebstrap || extra+=(mmdebstrap)
	have rpm || extra+=(rpm)
	have systemd-analyze || extra+=(systemd)
	wanted=servers
fi

# Into bin: of the package only this program is wanted, and not its service.
bin=$(dirname "$0")/../bin
have_promtool() { [ "$wanted" = servers ] || have promtool || [ -x "$bin/promtool" ]; }

missing=("${extra[@]}")
have initdb || missing+=(postgresql)
have redis-server || missing+=(redis-server)
have_rabbitmq || missing+=(rabbitmq-server)
have pgbouncer || missing+=(pgbouncer)
have_browser || missing+=(chromium)
have "$(go env CC)" || missing+=(gcc libc6-dev)
have_faketime || missing+=(faketime)
if [ -n "${OUTBOX_TEST_POSTGRES:-}" ] && [[ $OUTBOX_TEST_POSTGRES != */* ]]; then
	bash "$(dirname "$0")/postgres.sh" "$OUTBOX_TEST_POSTGRES"
fi
if [ ${#missing[@]} -eq 0 ] && have_promtool; then
	echo "deps: everything is here, nothing to install"
	exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
	cat >&2 <<-HINT
		deps: ${missing[*]} missing, and this system has no apt-get to install it with. Install PostgreSQL 13 or later
		(initdb, postgres), PgBouncer (pgbouncer), Redis 6 or later (redis-server), RabbitMQ 3.8 or later
		(rabbitmq-server, epmd), Chromium or Chrome (chromium, google-chrome), libfaketime, promtool of Prometheus
		and a C compiler, so that they are on PATH:
		  macOS:        brew install postgresql@17 pgbouncer redis rabbitmq prometheus; xcode-select --install; Chrome, linked as google-chrome
		  Fedora, RHEL: dnf install postgresql-server pgbouncer redis rabbitmq-server chromium libfaketime gcc
		  Arch:         pacman -S postgresql pgbouncer redis rabbitmq chromium libfaketime gcc
	HINT
	exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "deps: installing ${missing[*]} needs root and there is no sudo; as root run: apt-get update && apt-get install ${missing[*]}" >&2
		exit 1
	fi
	as_root=(sudo)
fi
echo "deps: installing ${missing[*]:-promtool} with apt-get"
# invoke-rc.d asks this file whether a package may start its service. Where there is one already, it decides.
policy=/usr/sbin/policy-rc.d
if [[ " ${missing[*]} " == *" rabbitmq-server "* ]] && [ ! -e "$policy" ]; then
	trap '"${as_root[@]}" rm -f "$policy"' EXIT
	printf '#!/bin/sh\ncase $1 in rabbitmq-server) exit 101 ;; esac\n' | "${as_root[@]}" tee "$policy" >/dev/null
	"${as_root[@]}" chmod 755 "$policy"
fi
"${as_root[@]}" apt-get update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
if ! have_promtool; then # 19 MB to fetch
	unpacked=$(mktemp -d)
	(cd "$unpacked" && apt-get download prometheus && dpkg -x prometheus_*.deb .)
	install -D "$unpacked/usr/bin/promtool" "$bin/promtool"
	rm -rf "$unpacked"
fi

# Installed is not enough: a distribution may name the program otherwise or put it elsewhere.
for program in initdb redis-server rabbitmq-server epmd pgbouncer "$(go env CC)"; do
	if ! have "$program"; then
		echo "deps: $program is still not found after installing ${missing[*]}; put it on PATH" >&2
		exit 1
	fi
done
if ! have_browser; then
	echo "deps: no Chromium is found after installing ${missing[*]}; put it on PATH as chromium" >&2
	exit 1
fi
