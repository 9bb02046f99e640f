#!/usr/bin/env bash
# The gateway's OpenAPI document, the admin API's in it, by the rules of Redocly and of Spectral. Needs node 20, npm, curl.
#
#   openapi.sh            looks at the document
#   openapi.sh --fetch    fetches the two programs into bin/openapi if they are not there
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/bin/openapi
if [ ! -x "$tools/node_modules/.bin/redocly" ] || [ ! -x "$tools/node_modules/.bin/spectral" ]; then
	if ! command -v npm >/dev/null; then
		echo "openapi: npm is not installed: apt-get install npm, or https://nodejs.org" >&2
		exit 1
	fi
	npm install --prefix "$tools" --no-save --no-audit --no-fund @redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3 >/dev/null
fi
[ "${1:-}" != --fetch ] || exit 0

work=$(mktemp -d)
trap 'kill %1 2>/dev/null || true; rm -rf "$work"' EXIT
go build -o "$work/outbox" ./cmd/outbox
"$work/outbox" dev --temp --http 127.0.0.1:0 >"$work/dev" 2>&1 &
for ((i = 0; i < 600; i++)); do
	page=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/dev" | head -1) || true
	if [ -n "$page" ] && curl -sf "$page/openapi.json" -o "$work/openapi.json"; then break; fi
	sleep 0.1
done
# A bearer token's scopes stand with the operations: OpenAPI 3.1 allows it, and this rule is of 3.0.
echo '{extends: ["spectral:oas"], rules: {oas3-operation-security-defined: "off"}}' >"$work/.spectral.yaml"
cd "$work"
"$tools/node_modules/.bin/redocly" lint openapi.json
"$tools/node_modules/.bin/spectral" lint --fail-severity=warn openapi.json
