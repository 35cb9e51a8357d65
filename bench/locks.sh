#!/usr/bin/env bash
# Runs locks by name of `ulnet serve` and of a Redis server (package redis-server) in turns, on the
# loopback, and prints medians in one table: how many locks a second are taken and given back, and how
# long the lock of a holder that was killed is waited for. Nothing is kept but what it prints.
#
#   bench/locks.sh                   three rounds, some three minutes after the build
#   ROUNDS=5 SECONDS_EACH=5 bench/locks.sh
#   ULNET=path/to/ulnet              the program to measure; built if not given
#
# Safety is what is held equal. A holder that is silent keeps its lock for TIME seconds: the callback
# timer here, the expiry of the key there, which its holder renews at each third of it. Each grant has a
# fencing number. What was granted survives the server where Redis writes each command to its file before
# it answers (`appendfsync always`); here holders repeat their locks. Redis without its file is shown
# beside it: after a restart it grants what others hold.
set -u
cd "$(dirname "$0")/.."
. bench/lib.sh

ROUNDS=${ROUNDS:-3}
SECONDS_EACH=${SECONDS_EACH:-2}
CLIENTS=${CLIENTS:-1 16}
TIME=${TIME:-10}
PORT=${PORT:-13990}
need_ulnet
need jq || exit 2
need redis-server || exit 2
rate=$(cargo build --release -p lustre-rt --bench lock_rate --message-format json |
    jq -r 'select(.target.name == "lock_rate").executable') || exit 2
[ -x "$rate" ] || exit 2
cargo build --release --manifest-path bench/redis/Cargo.toml >&2 || exit 2
redis=${CARGO_TARGET_DIR:-bench/redis/target}/release/redis-locks

dir=$(mktemp -d)
found=$dir/found
pids=()
end() { kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"; }
trap end EXIT
note() { [ -n "${2:-}" ] && [ "$2" != null ] && echo "$1 $2" >>"$found"; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }'; }

# Starts one of the servers, which stay until the end.
begin() {
    "$@" >"$dir/server-${#pids[@]}.log" 2>&1 &
    pids+=($!)
}
begin "$ULNET" serve "locks=lock:$dir/locks" --listen 127.0.0.1@tcp --port "$PORT" \
    --ldlm-enqueue-min "$TIME" --at-max "$((TIME / 2))"
begin redis-server --port $((PORT + 1)) --bind 127.0.0.1 --save '' --appendonly no --dir "$dir"
mkdir "$dir/aof"
begin redis-server --port $((PORT + 2)) --bind 127.0.0.1 --save '' --appendonly yes \
    --appendfsync always --dir "$dir/aof"
sleep 1
for n in "${!pids[@]}"; do
    kill -0 "${pids[$n]}" 2>/dev/null || { cat "$dir/server-$n.log" >&2; exit 2; }
done

rates() {
    local name=$1 clients=$2 out; shift 2
    out=$(run "$@") || return
    note "${name}_rate_$clients" "$(jq .per_second <<<"$out")"
    note "${name}_p50_$clients" "$(jq .p50_us <<<"$out")"
    note "${name}_p99_$clients" "$(jq .p99_us <<<"$out")"
}
with_ulnet() {
    rates ulnet "$1" "$rate" 127.0.0.2 "$PORT" 127.0.0.1@tcp locks "$1" "$SECONDS_EACH"
}
with_redis() { rates redis "$1" "$redis" rate 127.0.0.1:$((PORT + 1)) "$1" "$SECONDS_EACH"; }
with_file() { rates file "$1" "$redis" rate 127.0.0.1:$((PORT + 2)) "$1" "$SECONDS_EACH"; }

# What holds a lock is killed, and another one waits for the lock from then on.
take_over() {
    local name=$1 holder=$2 waiter=$3 pid begun
    # Each in a session of its own: what a killed holder has started ends with it.
    setsid bash -c "exec $holder" >"$dir/holder" 2>&1 &
    pid=$!
    until grep -qs locked "$dir/holder"; do sleep 0.05; done
    # Some time within the holder's third of the time.
    sleep "$((RANDOM % (TIME * 10 / 3) / 10)).$((RANDOM % 10))"
    kill -KILL -- -$pid 2>/dev/null
    wait $pid 2>/dev/null
    begun=$(now)
    run bash -c "exec $waiter" >"$dir/waiter" 2>&1 && grep -q locked "$dir/waiter" || return
    note "${name}_over" "$(since "$begun")"
}
lock="$ULNET lock run --server 127.0.0.1@tcp --port $PORT --resource"

echo "machine: $(nproc) processors, Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$("$ULNET" --version); $(redis-server --version | cut -d' ' -f1-3); $ROUNDS rounds of $SECONDS_EACH s"
for round in $(seq "$ROUNDS"); do
    for clients in $CLIENTS; do
        with_ulnet "$clients"; with_redis "$clients"; with_file "$clients"
    done
    # The three beside each other: they wait and do nothing.
    name=over-$round-$$
    dead=()
    (dir=$dir/1; mkdir -p "$dir"; take_over ulnet "$lock $name -- sh -c 'echo locked; exec sleep 600'" \
        "$lock $name -- echo locked") &
    dead+=($!)
    (dir=$dir/2; mkdir -p "$dir"; take_over redis \
        "$redis hold 127.0.0.1:$((PORT + 1)) $name $((TIME * 1000))" \
        "$redis take 127.0.0.1:$((PORT + 1)) $name $((TIME * 1000))") &
    dead+=($!)
    (dir=$dir/3; mkdir -p "$dir"; take_over file \
        "$redis hold 127.0.0.1:$((PORT + 2)) $name $((TIME * 1000))" \
        "$redis take 127.0.0.1:$((PORT + 2)) $name $((TIME * 1000))") &
    dead+=($!)
    wait "${dead[@]}"
    echo "round $round done, load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
done

m() { median "$found" "$1"; }
row() { printf '%-46s %12s %14s %16s\n' "$@"; }
echo
row "medians of $ROUNDS rounds" "ulnet lock" "Redis, no file" "Redis, fsync"
for clients in $CLIENTS; do
    row "$clients client(s): taken and given back per second" \
        "$(m ulnet_rate_$clients)" "$(m redis_rate_$clients)" "$(m file_rate_$clients)"
    row "  granted within, µs, in the median" "$(m ulnet_p50_$clients)" "$(m redis_p50_$clients)" "$(m file_p50_$clients)"
    row "  99 of 100 granted within, µs" "$(m ulnet_p99_$clients)" "$(m redis_p99_$clients)" "$(m file_p99_$clients)"
done
row "holder killed: granted to another after, s" "$(m ulnet_over)" "$(m redis_over)" "$(m file_over)"
row "a silent holder keeps its lock for, s" "$TIME" "$TIME" "$TIME"
row "locks survive a server that is killed" yes no yes
