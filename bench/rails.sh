#!/usr/bin/env bash
# Two nodes in two network namespaces, joined by two veth pairs of 1 Gbit/s each (tc tbf): how much
# more do two rails carry than one? Prints that ratio on standard output, the rates on standard error.
# Needs root; everything is removed at the end.
set -u
cd "$(dirname "$0")/.."
. bench/lib.sh

need ip && need tc && need jq || exit 0
[ "$(id -u)" = 0 ] || { echo "rails: not root, left out" >&2; exit 0; }
need_ulnet
SECONDS_EACH=${SECONDS_EACH:-3}
a=ulnet-bench-a-$$ b=ulnet-bench-b-$$
server=
clean() {
    [ -n "$server" ] && kill "$server" 2>/dev/null
    no_rails "$a" "$b"
}
trap clean EXIT

two_rails "$a" "$b" || exit 2

# rate RAILS: MiB/s of 1 MiB PUTs.
rate() {
    local own=10.99.0.2 theirs=10.99.0.1
    [ "$1" = 2 ] && own+=,10.99.1.2 && theirs+=,10.99.1.1
    ip netns exec "$a" "$ULNET" perf server --addr "$theirs" --rails "$1" >/dev/null &
    server=$!
    sleep 1
    ip netns exec "$b" timeout 60 "$ULNET" perf client --addr "$own" --server 10.99.0.1 --rails "$1" --json \
        --test put --size 1M --window 32 --seconds "$SECONDS_EACH" | jq '.rows[0].mib_per_second'
    kill "$server"; wait "$server" 2>/dev/null; server=
}
found=$(mktemp)
for _ in 1 2 3; do
    note one "$(rate 1)"
    note two "$(rate 2)"
done
one=$(m one) two=$(m two)
rm -f "$found"
echo "rails: one $one MiB/s, two $two MiB/s" >&2
awk -v a="$two" -v b="$one" 'BEGIN { if (b > 0) printf "%.3f\n", a / b }'
