#!/usr/bin/env bash
# Runs outboxtest.StoreSuite, operatetest.Suite and storetest.StoreSuite on the stores of both databases and prints what each made of every behaviour, side by side. Fails if one of them failed.
set -uo pipefail
cd "$(dirname "$0")/.."

# One line a behaviour: its name, and PASS, FAIL or "not promised".
on() {
	go test -count=1 -v -run '^TestStoreSuite$' "$@" |
		sed -nE -e 's/^ +--- (PASS|FAIL): TestStoreSuite\/([a-z]+\/.+) \([0-9.]+s\)$/\2\t\1/p' -e 's/^ +store\.go:[0-9]+: (.+): not promised by this store.*$/\1\tnot promised/p' |
		tr _ ' ' | sed -E 's/^(engine|letters|operate|runs|tokens)\///' | sort -t "$(printf '\t')" -k1,1
}

postgres=$(on ./store/postgres ./internal/store/pgcold ./server/pgstore) && sqlite=$(on ./store/sqlite ./internal/store/sqlitecold ./server/sqlitestore)
status=$?
join -t "$(printf '\t')" -a1 -a2 -e '(absent)' -o 0,1.2,2.2 <(echo "$postgres") <(echo "$sqlite") |
	awk -F '\t' 'BEGIN { printf "%-90s %-14s %s\n", "BEHAVIOUR", "PostgreSQL", "SQLite" } { printf "%-90s %-14s %s\n", $1, $2, $3; n++ } END { print n " behaviours" }'
exit $status
