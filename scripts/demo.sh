#!/usr/bin/env bash
# The demonstration: private servers, a relay, a file of events, and what a subscriber sees of them.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/deps.sh servers
go build -o bin/outbox ./cmd/outbox
exec go run ./internal/demo -outbox bin/outbox "$@"
