#!/usr/bin/env bash
# The resident memory of a daemon with 10,000 connected peers that say nothing, MiB on standard output.
# Each peer is a connection from an address of its own that has pinged the node once.
set -u
cd "$(dirname "$0")/.."
. bench/lib.sh

PEERS=${PEERS:-10000}
PORT=${PORT:-13960}
need_ulnet
[ "$(ulimit -n)" -gt $((PEERS + 100)) ] || ulimit -n $((PEERS + 100)) 2>/dev/null ||
    { echo "idle-peers: $(ulimit -n) open files allowed, $PEERS peers need $((PEERS + 100))" >&2; exit 0; }
dir=$(mktemp -d)
"$ULNET" daemon --socket "$dir/ctl" --port "$PORT" >"$dir/log" 2>&1 &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; rm -rf "$dir"' EXIT
for _ in $(seq 50); do [ -S "$dir/ctl" ] && break; sleep 0.1; done
export ULNET_SOCKET=$dir/ctl
{ "$ULNET" ctl lnet configure && "$ULNET" ctl net add --nid 127.80.255.254@tcp; } >&2 ||
    { cat "$dir/log" >&2; exit 1; }
"$ULNET" perf idle-peers --server 127.80.255.254 --port "$PORT" --peers "$PEERS" --pid $daemon --hold 1 >"$dir/out" ||
    { cat "$dir/log" >&2; exit 1; }
cat "$dir/out" >&2
awk '/^after:/ { printf "%.1f\n", $2 / 1024 }' "$dir/out"
