#!/usr/bin/env bash
# Builds the operator's page from its lock file, and fails where ui/dist is not what it gives.
set -euo pipefail
cd "$(dirname "$0")/.."
npm --prefix ui ci --no-audit --no-fund
npm --prefix ui run build
git add --intent-to-add ui/dist
git diff --exit-code --stat -- ui/dist
