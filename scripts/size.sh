#!/usr/bin/env bash
# size.sh [COMMIT]: how large the source is, beside COMMIT if one is named (internal/arch/size says what is counted).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
go build -o bin/size ./internal/arch/size
if [ $# -eq 0 ]; then
	bin/size
	exit
fi
before=$(mktemp -d)
trap 'git worktree remove --force "$before"' EXIT
git worktree add --quiet --detach "$before" "$1"
paste <(bin/size -dir "$before") <(bin/size | cut -f 2) | awk -F '\t' -v before="$1" '
	BEGIN { printf "%-36s %-40s %s\n", "", before, "now" } { printf "%-36s %-40s %s\n", $1, $2, $3 }'
