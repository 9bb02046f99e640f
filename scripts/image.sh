#!/usr/bin/env bash
# Builds the container image of the last commit for amd64 and arm64 as an OCI layout, in FOLDER (dist/image), and prints its digest. Needs no registry, no
# daemon and no root; the same commit makes the same digest. VERSION names it, or else the commit does. Then, for example:
#   skopeo copy --all oci:dist/image docker://registry.example/outbox:VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist/image}")
if [ -e "$out" ] && [ ! -f "$out/oci-layout" ]; then
	echo "image: $out is there and is no image: name another folder" >&2
	exit 1
fi
commit=$(git rev-parse HEAD)
version=${VERSION:-v0.0.0-dev.${commit:0:12}}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CGO_ENABLED=0

# From the commit alone: what is not committed must not be in an image that names it.
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git archive HEAD | tar -x -C "$source"
cd "$source"
at=github.com/outboxrelay/outbox/internal/version
for arch in amd64 arm64; do
	GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -o "$source/$arch" \
		-ldflags "-s -w -buildid= -X $at.stamped=$version -X $at.revision=$commit" ./cmd/outbox
done
go run -C deploy/image . -out "$source/image" -version "$version" -revision "$commit" "amd64=$source/amd64" "arm64=$source/arm64"
rm -rf "$out"
mkdir -p "$(dirname "$out")"
mv "$source/image" "$out"
