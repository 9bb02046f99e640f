#!/usr/bin/env bash
# release.sh: what a release has, in dist (OUT): archives of static programs, .deb and .rpm, an SBOM each, checksums. Nothing is published.
#
#   release.sh                  all of it, for TARGETS (linux, darwin, windows on amd64 and arm64)
#   release.sh --binary PATH    the program for this machine alone, as a release has it
#   release.sh --twice          in two folders, the second with a build cache of its own, and whether the checksums are equal
#
# VERSION is that of the tag, or of the commit. Equal sources give equal files: times are the commit's, paths and machine are in none.
# OUTBOX_SIGNING_KEY is the path of an ssh key that signs the checksums: ssh-keygen -Y verify -n outbox-release checks that.
set -euo pipefail
cd "$(dirname "$0")/.."

# Not goreleaser: its newest needs a newer Go, and the others a module that the proxy refuses. This is what it would call.
targets=${TARGETS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}
known=$(go tool dist list)
for target in $targets; do
	if ! grep -qx "$target" <<<"$known"; then
		echo "release: Go builds nothing for $target; TARGETS takes what \`go tool dist list\` prints" >&2
		exit 2
	fi
done
commit=${COMMIT:-$(git rev-parse HEAD)}
version=${VERSION:-$(git describe --tags --exact-match --match 'v*' 2>/dev/null || echo "v0.0.0-dev.${commit:0:12}")}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct "$commit")}
export CGO_ENABLED=0 TZ=UTC LC_ALL=C
umask 022

build() { # OS/ARCH PATH
	local at=github.com/outboxrelay/outbox/internal/version
	GOOS=${1%/*} GOARCH=${1#*/} go build -trimpath -buildvcs=false -o "$2" \
		-ldflags "-s -w -buildid= -X $at.stamped=$version -X $at.revision=$commit" ./cmd/outbox
}

twice() {
	first=$(mktemp -d) second=$(mktemp -d)
	trap 'chmod -R u+w "$first" "$second"; rm -rf "$first" "$second"' EXIT
	for there in "$first" "$second"; do
		mkdir "$there/source"
		git archive "$commit" | tar -x -C "$there/source"
		mkdir -p "$there/source/bin"
		cp bin/nfpm-* bin/cyclonedx-gomod-* "$there/source/bin"
		[ "$there" = "$first" ] || export GOCACHE=$there/cache
		COMMIT=$commit VERSION=$version TARGETS=$targets OUT=$there/dist bash "$there/source/scripts/release.sh" >/dev/null
	done
	diff "$first/dist/checksums.txt" "$second/dist/checksums.txt"
	cat "$first/dist/checksums.txt"
	echo "release: two builds of $commit, equal files"
}

case ${1:-} in
--binary)
	build "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" "$2"
	exit
	;;
--twice)
	twice
	exit
	;;
"") ;;
*)
	echo "release: unknown $1; see the head of scripts/release.sh" >&2
	exit 2
	;;
esac

out=${OUT:-dist}
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What the program says of itself, by the one for this machine.
bash scripts/release.sh --binary "$work/outbox"
mkdir -p "$work/share/man" "$work/share/completion"
"$work/outbox" man "$work/share/man" 2>/dev/null
for shell in bash zsh fish; do "$work/outbox" completion $shell >"$work/share/completion/outbox.$shell"; done
"$work/outbox" init --file "$work/share/outbox.yaml" >/dev/null 2>&1
cp README.md LICENSE CHANGELOG.md deploy/outbox.service "$work/share"

for target in $targets; do
	os=${target%/*} arch=${target#*/}
	name=outbox_${version#v}_${os}_$arch program=outbox
	[ "$os" = windows ] && program=outbox.exe
	cp -r "$work/share" "$work/$name"
	build "$target" "$work/$name/$program"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" | gzip -n9 >"$out/$name.tar.gz"
	bin/cyclonedx-gomod-* bin -json -noserial -notimestamp -version "$version" -output "$out/$name.cdx.json" "$work/$name/$program" 2>/dev/null
	[ "$os" = linux ] || continue
	gzip -n9 "$work/$name"/man/*.1
	for packager in deb rpm; do
		CONTENT=$work/$name ARCH=$arch VERSION=$version bin/nfpm-* package --config deploy/package/nfpm.yaml \
			--packager $packager --target "$out" >&2
	done
done

cd "$out"
sha256sum -- outbox[_-]* >checksums.txt
if [ -n "${OUTBOX_SIGNING_KEY:-}" ]; then
	ssh-keygen -q -Y sign -n outbox-release -f "$OUTBOX_SIGNING_KEY" checksums.txt
fi
ls -l
