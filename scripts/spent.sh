#!/usr/bin/env bash
# Tells what tests cost in processor time, which on a machine that others use as well says more than the clock. `go test -exec "bash
# scripts/spent.sh FILE"` runs each test binary by it and appends a line to FILE: the seconds of the binary and of the processes that it has
# waited for, such as its servers, and the package. What go test takes from its cache has no line. `spent.sh --report FILE` prints the lines.
set -uo pipefail

if [ "$1" = --report ]; then
	[ -s "$2" ] || exit 0
	echo "processor seconds by package, without compiling:"
	sort -rn "$2" | awk '{ print; sum += $1 } END { printf "%7.1f in all\n", sum }'
	exit 0
fi

file=$1
shift
"$@"
status=$?
# The second line of times: user and system time of the children, as 1m2.345s 0m0.678s. Not by a pipe, whose shell has none.
times >"$file.$$"
awk -v package="${PWD#"$(cd "$(dirname "$0")/.." && pwd)"}" '
	function seconds(t) { split(t, part, /[ms]/); return part[1] * 60 + part[2] }
	NR == 2 { printf "%7.1f .%s\n", seconds($1) + seconds($2), package }' "$file.$$" >>"$file"
rm -f "$file.$$"
exit $status
