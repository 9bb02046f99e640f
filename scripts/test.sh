#!/usr/bin/env bash
# Runs one tier of the tests: scripts/test.sh test|full|all. internal/test/tier explains the tiers. Every group of packages
# runs even if an earlier one failed. At the end it prints the slowest packages, the processor time of vet and building, and
# the number of tests that this tier leaves out.
set -uo pipefail
cd "$(dirname "$0")/.."
tier=$1
mkdir -p bin
spent=$PWD/bin/spent
export OUTBOX_TEST_TIER=$tier OUTBOX_TEST_SKIPPED=$PWD/bin/skipped
rm -f "$spent" "$OUTBOX_TEST_SKIPPED"
failed=()

# step runs a command and notes its failure.
step() {
	"$@" || failed+=("$*")
}

# SQLite is C code translated to Go. The race detector makes it four times as slow and is of no use there.
race=(-race -gcflags=modernc.org/...=-race=false)

# tests runs go test. Without DWARF a binary is linked in two thirds of the processor time. Most tests wait most of the time,
# so more of them run at once than there are processors.
module=.
timeout=10m
tests() {
	step go -C "$module" test -vet=off -ldflags=-w -exec "bash $PWD/scripts/spent.sh $spent" -timeout $timeout -parallel 8 "$@"
}

# without lists the packages of this module except those that match a pattern.
without() { go list ./... | grep -Ev "$1"; }

# Packages that kill programs and servers under load. They run alone: other tests would disturb them, and they others.
faults='/internal/test/(chaos|sources)$'
# Packages that start several programs for each test. testenv.AtOnce limits how many tests of them run at once.
drivers='/internal/(cli|test/(integration|conditions|install|install/packages))$|/examples/'
# Packages without a test of the tier "test". That tier does not link them. internal/arch checks this list.
later='/(examples/consumers|internal/test/(conditions|install|install/packages|sources))$'

for module in bench internal/test/browser .; do
	step go -C "$module" vet ./...
done

case $tier in
test)
	# The race detector watches the code that runs goroutines; the tier "full" has all of it. It makes the relay's long
	# simulations twenty times as slow, so they run without it.
	raced='/outbox(/(relay|inbox|sink|internal/sink/.*|server/(gateway|stream|sse)))?$'
	simulations='^Test(NoInnocentDies|PartialOutage|PoisonIsFound|RelaysShareTheLanes|ShareChangesBackDuringHandOver|Outage)$'
	tests "${race[@]}" -skip "$simulations" $(go list ./... | grep -E "$raced")
	tests -run "$simulations" ./relay
	tests "${race[@]}" -run 'Inbox|Group' ./store/sqlite
	tests $(without "$raced|$faults|$later")
	faults='/internal/test/chaos$'
	;;
full)
	timeout=30m
	tests "${race[@]}" $(without "$faults|$drivers")
	tests -p 2 $(go list ./... | grep -E "$drivers")
	;;
all)
	timeout=120m
	tests $(without "$faults|$drivers")
	tests -p 2 $(go list ./... | grep -E "$drivers")
	;;
*)
	echo "scripts/test.sh: unknown tier \"$tier\": want test, full or all" >&2
	exit 2
	;;
esac
tests -p 1 $(go list ./... | grep -E "$faults")
for module in bench internal/test/browser; do
	tests ./...
done

echo
echo "tier \"$tier\" in $((SECONDS / 60))m$((SECONDS % 60))s; the slowest packages (processor seconds, wall seconds):"
sort -rn "$spent" | head -15
# The second line of times has the processor time of all that this script ran; what the tests did not use is vet and building.
times >"$spent.times"
awk -v tests="$(awk '{ sum += $1 } END { print sum }' "$spent")" '
	function seconds(t) { split(t, part, /[ms]/); return part[1] * 60 + part[2] }
	NR == 2 { all = seconds($1) + seconds($2); printf "%7.1f in all: %.1f in tests, %.1f in vet and building\n", all, tests, all - tests }' "$spent.times"
go test -count=1 -v -run '^TestTiersLeaveOutCountedTests$' ./internal/arch | sed -n 's/^ *tiers_test.go:[0-9]*: \([0-9]* tests: .*\)/\1/p'
if [ -s "$OUTBOX_TEST_SKIPPED" ]; then
	echo "skipped tests and subtests: $(cut -f1 "$OUTBOX_TEST_SKIPPED" | sort | uniq -c | awk '{ n = $1; $1 = ""; printf "%s%d:%s", s, n, $0; s = ", " }')"
fi
if ((${#failed[@]})); then
	printf 'FAILED: %s\n' "${failed[@]}" | cut -c1-200 >&2
	exit 1
fi
