#!/usr/bin/env bash
# Measures test binaries. `go test -exec "bash scripts/spent.sh FILE"` runs each binary through this script, which appends
# one line to FILE: processor seconds, wall seconds, package. The processor seconds include the servers and programs that the
# binary started and waited for.
set -uo pipefail

file=$1
shift
began=$EPOCHREALTIME
"$@"
status=$?
ended=$EPOCHREALTIME
# The second line of times has the children's user and system time, for example 1m2.345s 0m0.678s.
times >"$file.$$"
awk -v package="${PWD#"$(cd "$(dirname "$0")/.." && pwd)"}" -v began="$began" -v ended="$ended" '
	function seconds(t) { split(t, part, /[ms]/); return part[1] * 60 + part[2] }
	NR == 2 { printf "%7.1f %7.1f .%s\n", seconds($1) + seconds($2), ended - began, package }' "$file.$$" >>"$file"
rm -f "$file.$$"
exit $status
