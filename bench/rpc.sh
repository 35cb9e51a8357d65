#!/usr/bin/env bash
# Runs `ulnet perf rpc` and a gRPC server (tonic, `bench/tonic`) in turns, and prints medians against
# the bars that the project has set itself. Nothing is kept but what it prints.
#
#   bench/rpc.sh                     five rounds, some two minutes after the build
#   ROUNDS=9 SECONDS_EACH=2 bench/rpc.sh
#   REALTIME=1 bench/rpc.sh          everything under SCHED_FIFO (root), for a machine that is not idle
#   ULNET=path/to/ulnet              the program to measure; built if not given
set -u
cd "$(dirname "$0")/.."
. bench/lib.sh

ROUNDS=${ROUNDS:-5}
SECONDS_EACH=${SECONDS_EACH:-1}
PORT=${PORT:-13970}
need_ulnet
need jq || exit 2
cargo build --release --manifest-path bench/tonic/Cargo.toml >&2 || exit 2
tonic=${CARGO_TARGET_DIR:-bench/tonic/target}/release/tonic-bench

found=$(mktemp); trap 'rm -f "$found"' EXIT

# The figures of one way to call: inline or threaded.
calls() {
    local way=$1 out what; shift
    out=$(run "$ULNET" perf rpc "$@" --json --seconds "$SECONDS_EACH" --port "$PORT") || return
    note "${way}_trip" "$(jq '.rows[] | select(.what=="round-trip").ratio' <<<"$out")"
    note "${way}_rate" "$(jq '.rows[] | select(.what=="rate").ratio' <<<"$out")"
    note "${way}_calls" "$(jq '.rows[] | select(.what=="rate").per_second' <<<"$out")"
    for what in write read; do
        for size in 1 16; do
            note "${way}_$what$size" "$(jq ".rows[] | select(.what==\"$what\" and .size==$((size << 20))).ratio" <<<"$out")"
        done
        note "${way}_$what" "$(jq ".rows[] | select(.what==\"$what\" and .size==1048576).mib_per_second" <<<"$out")"
    done
}

grpc() {
    local out
    out=$(run "$tonic" "$SECONDS_EACH") || return
    note tonic_calls "$(jq .calls_per_second <<<"$out")"
    note tonic_write "$(jq .write_mib_per_second <<<"$out")"
    note tonic_read "$(jq .read_mib_per_second <<<"$out")"
}

echo "machine: $(nproc) processors, Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$("$ULNET" --version); $ROUNDS rounds of $SECONDS_EACH s for each measurement${REALTIME:+, under SCHED_FIFO}"
for round in $(seq "$ROUNDS"); do
    calls inline --inline; calls threaded; grpc
    echo "round $round done, load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
done

echo
bar "empty call, inline / two PUTs of 8 bytes" "$(m inline_trip)" '<=' 2.6
bar "empty call, threaded / two PUTs of 8 bytes" "$(m threaded_trip)" '<=' 3.5
bar "calls per second, window 256 / PUTs of 8 bytes" "$(m inline_rate)" '>=' 0.35
for size in 1 16; do
    bar "bulk write of $size MiB / GETs of 1 MiB" "$(m inline_write$size)" '>=' 0.92
    bar "bulk read of $size MiB / PUTs of 1 MiB" "$(m inline_read$size)" '>=' 0.92
done
bar "calls per second, inline / tonic" "$(div "$(m inline_calls)" "$(m tonic_calls)")" '>=' 4
bar "calls per second, threaded / tonic" "$(div "$(m threaded_calls)" "$(m tonic_calls)")" '>=' 4
bar "bulk write of 1 MiB / tonic" "$(div "$(m inline_write)" "$(m tonic_write)")" '>=' 1.5
bar "bulk read of 1 MiB / tonic" "$(div "$(m inline_read)" "$(m tonic_read)")" '>=' 1.5
sum_up
