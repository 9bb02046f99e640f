#!/usr/bin/env bash
# An upgrade from an earlier commit, and its way back, under load: versions.sh COMMIT.
set -euo pipefail
cd "$(dirname "$0")/.."
before=${1:-HEAD~1}
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree/tree" 2>/dev/null; rm -rf "$tree"' EXIT
git worktree add --quiet --detach "$tree/tree" "$before"
echo "before: $(git log -1 --format='%h %s' "$before")"
go -C "$tree/tree" build -o "$tree/outbox" ./cmd/outbox
OUTBOX_TEST_BEFORE=$tree/outbox go test -vet=off -count=1 -v -run '^TestTwoVersions$' ./internal/test/integration
