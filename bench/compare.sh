#!/usr/bin/env bash
# Runs `ulnet perf` beside what else moves bytes over TCP on this machine, alternating, and prints the
# medians against the bars that the project has set itself. Nothing is kept but what it prints.
#
#   bench/compare.sh                 five rounds, a few minutes
#   ROUNDS=9 SECONDS_EACH=2 bench/compare.sh
#   REALTIME=1 bench/compare.sh      everything under SCHED_FIFO (root), for a machine that is not idle
#   ULNET=path/to/ulnet              the program to measure; built if not given
#   SKIP="rails idle"                parts to leave out: rails (root), idle
set -u
cd "$(dirname "$0")/.."
. bench/lib.sh

ROUNDS=${ROUNDS:-5}
SECONDS_EACH=${SECONDS_EACH:-1}
SKIP=${SKIP:-}
PORT=${PORT:-13950}
need_ulnet
need jq || exit 2

# Bytes of the frame that carries eight bytes of payload: header of frame and message before them.
FRAME=104
found=$(mktemp); trap 'rm -f "$found"; stop_all' EXIT

ulnet_inline() {
    local out
    out=$(run "$ULNET" perf local --inline --baseline --json --seconds "$SECONDS_EACH" \
        --port $((PORT + 1)) --test latency,put --size 8) || return
    note inline "$(jq '.rows[] | select(.test=="latency" and .over=="lnet").latency_ns.p50 / 1000' <<<"$out")"
    note bare "$(jq '.rows[] | select(.test=="latency" and .over=="bare").latency_ns.p50 / 1000' <<<"$out")"
    note rate "$(jq '.rows[] | select(.test=="put").per_second' <<<"$out")"
}

ulnet_threaded() {
    local out
    out=$(run "$ULNET" perf local --json --seconds "$SECONDS_EACH" --port $((PORT + 1)) \
        --test latency,put --size 8) || return
    note threaded "$(jq '.rows[] | select(.test=="latency").latency_ns.p50 / 1000' <<<"$out")"
    note threaded_rate "$(jq '.rows[] | select(.test=="put").per_second' <<<"$out")"
}

ulnet_bulk() {
    local out test
    out=$(run "$ULNET" perf local --json --seconds "$SECONDS_EACH" --port $((PORT + 1)) \
        --test put,get --size 1M --window 4) || return
    for test in put get; do
        note "$test" "$(jq ".rows[] | select(.test==\"$test\").mib_per_second" <<<"$out")"
        note "${test}_cpu" "$(jq ".rows[] | select(.test==\"$test\") | (.cpu_ns | add) / .size" <<<"$out")"
    done
}

with_iperf3() {
    local out
    serve iperf3 -s -1 -p $((PORT + 2)) || return
    out=$(run iperf3 -c 127.0.0.1 -p $((PORT + 2)) -P 1 -t "$SECONDS_EACH" -J)
    note iperf3 "$(jq '.end.sum_received.bits_per_second / 8 / 1048576' <<<"$out")"
    note iperf3_cpu "$(jq '.end | (.cpu_utilization_percent.host_total + .cpu_utilization_percent.remote_total)
        / 100 * .sum_received.seconds * 1e9 / .sum_received.bytes' <<<"$out")"
    stop
}

with_sockperf() {
    serve sockperf sr --tcp -i 127.0.0.1 -p $((PORT + 3)) || return
    note sockperf "$(run sockperf pp --tcp -i 127.0.0.1 -p $((PORT + 3)) -m $FRAME -t "$SECONDS_EACH" 2>&1 |
        sed -n 's/.*percentile 50.000 = *\([0-9.]*\).*/\1/p')"
    stop
}

ucx() {
    local name=$1 column=$2; shift 2
    serve ucx_perftest -p $((PORT + 4)) || return
    note "$name" "$(run ucx_perftest -p $((PORT + 4)) 127.0.0.1 "$@" 2>&1 |
        awk -v c="$column" '/^Final:/ { print $c }')"
    stop
}

with_ucx() {
    export UCX_TLS=tcp UCX_NET_DEVICES=lo
    ucx ucx_lat 3 -t tag_lat -s 8 -n $((40000 * SECONDS_EACH))
    ucx ucx_rate 9 -t tag_bw -s 8 -n $((250000 * SECONDS_EACH))
}

with_libfabric() {
    serve fi_pingpong -p tcp -e msg -d lo -B $((PORT + 5)) || return
    note libfabric "$(run fi_pingpong -p tcp -e msg -d lo -P $((PORT + 5)) -S 8 -I $((10000 * SECONDS_EACH)) 127.0.0.1 2>&1 |
        awk '$1 == 8 { print $7 }')"
    stop
}

echo "machine: $(nproc) processors, Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$("$ULNET" --version); $ROUNDS rounds of $SECONDS_EACH s for each measurement${REALTIME:+, under SCHED_FIFO}"
all="ulnet_inline ulnet_threaded ulnet_bulk"
for tool in iperf3 sockperf ucx_perftest fi_pingpong; do
    need $tool || continue
    case $tool in
    ucx_perftest) all+=" with_ucx" ;;
    fi_pingpong) all+=" with_libfabric" ;;
    *) all+=" with_$tool" ;;
    esac
done
for round in $(seq "$ROUNDS"); do
    for one in $all; do $one; done
    echo "round $round done, load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
done

echo
echo "medians (µs one way, messages/s, MiB/s, ns of processor time per byte):"
for name in inline bare ucx_lat libfabric threaded sockperf rate ucx_rate threaded_rate put get iperf3 put_cpu get_cpu iperf3_cpu; do
    printf '  %-14s %s\n' $name "$(m $name)"
done
echo
printf '%-52s %10s  %2s %10s\n' bar measured '' limit
bar "inline latency / bare socket" "$(div "$(m inline)" "$(m bare)")" '<=' 1.10
bar "inline latency, µs; UCX tag_lat" "$(m inline)" '<' "$(m ucx_lat)"
bar "inline latency, µs; libfabric" "$(m inline)" '<' "$(m libfabric)"
bar "threaded latency / sockperf" "$(div "$(m threaded)" "$(m sockperf)")" '<=' 0.70
bar "8-byte PUTs/s, window 256" "$(m rate)" '>=' 1500000
bar "8-byte PUTs/s / UCX tag_bw" "$(div "$(m rate)" "$(m ucx_rate)")" '>=' 8
bar "threaded 8-byte PUTs/s / inline" "$(div "$(m threaded_rate)" "$(m rate)")" '>=' 0.75
bar "1 MiB PUT / iperf3" "$(div "$(m put)" "$(m iperf3)")" '>=' 0.95
bar "1 MiB GET / iperf3" "$(div "$(m get)" "$(m iperf3)")" '>=' 0.95
bar "processor time per byte of PUT / iperf3" "$(div "$(m put_cpu)" "$(m iperf3_cpu)")" '<=' 1.1
bar "processor time per byte of GET / iperf3" "$(div "$(m get_cpu)" "$(m iperf3_cpu)")" '<=' 1.1
case " $SKIP " in *" rails "*) ;; *) bar "two rails of 1 Gbit/s / one" "$(bench/rails.sh)" '>=' 1.95 ;; esac
case " $SKIP " in *" idle "*) ;; *) bar "memory with 10,000 idle peers, MiB" "$(bench/idle-peers.sh)" '<=' 200 ;; esac
sum_up
