# What the scripts in this directory share. To be sourced.

# The program under test: $ULNET, or a release build.
need_ulnet() {
    if [ -z "${ULNET:-}" ]; then
        cargo build --release -p ulnet >&2 || exit 2
        ULNET=${CARGO_TARGET_DIR:-target}/release/ulnet
    fi
    [ -x "$ULNET" ] || { echo "$0: '$ULNET': not a program" >&2; exit 2; }
    ULNET=$(realpath "$ULNET")
}

# Says so if a tool is missing.
need() {
    command -v "$1" >/dev/null || { echo "MISSING: $1 is not installed, its rows are left out" >&2; return 1; }
}

# What something is run by: for a minute at most.
by=(timeout 60 ${REALTIME:+chrt -f 10})
run() { "${by[@]}" "$@"; }

served=
# Starts a server in the background, and gives it the time to listen.
serve() {
    # No shell stands before it: `stop` would end that one alone.
    "${by[@]}" "$@" >/dev/null 2>&1 &
    served=$!
    sleep 0.5
    kill -0 "$served" 2>/dev/null || { echo "$1 did not start as a server" >&2; return 1; }
}
# Ends it.
stop() {
    [ -n "$served" ] && kill "$served" 2>/dev/null && wait "$served" 2>/dev/null
    served=
}
stop_all() { stop; }

# median FILE NAME: of the second column where the first is NAME.
median() {
    awk -v n="$2" '$1 == n { print $2 }' "$1" | sort -g |
        awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}

# note NAME VALUE: one line for each measurement in $found; none for one that is missing.
note() { [ -n "${2:-}" ] && [ "$2" != null ] && echo "$1 $2" >>"$found"; }
# m NAME: the median of a measurement.
m() { median "$found" "$1"; }
div() { [ -n "$1" ] && [ -n "$2" ] && awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

bars=0 missed=0
# bar WHAT VALUE OPERATOR LIMIT: all numbers, computed by awk; empty where a tool is missing.
bar() {
    local verdict
    bars=$((bars + 1))
    if [ -z "$2" ] || [ -z "$4" ]; then verdict="not measured"; else
        verdict=$(awk -v a="$2" -v b="$4" "BEGIN { print (a $3 b) ? \"met\" : \"MISSED\" }")
    fi
    [ "$verdict" = met ] || missed=$((missed + 1))
    printf '%-58s %10s  %2s %10s  %s\n' "$1" "$2" "$3" "$4" "$verdict"
}
sum_up() {
    echo
    echo "$((bars - missed)) of $bars bars met; load $(cut -d' ' -f1-3 /proc/loadavg)"
}

# two_rails A B: network namespaces of these names, joined by two veth pairs of 1 Gbit/s each (tc tbf):
# 10.99.0.1 and 10.99.1.1 in A, 10.99.0.2 and 10.99.1.2 in B. Needs root.
two_rails() {
    local rail side ns host
    ip netns add "$1" && ip netns add "$2" || return
    ip -n "$1" link set lo up && ip -n "$2" link set lo up || return
    for rail in 0 1; do
        ip link add "r$rail" netns "$1" type veth peer name "r$rail" netns "$2" || return
        for side in "$1 1" "$2 2"; do
            read -r ns host <<<"$side"
            ip -n "$ns" addr add "10.99.$rail.$host/24" dev "r$rail" || return
            ip -n "$ns" link set "r$rail" up || return
            tc -n "$ns" qdisc add dev "r$rail" root tbf rate 1gbit burst 256kb latency 50ms || return
        done
    done
}
no_rails() { ip netns del "$1" 2>/dev/null; ip netns del "$2" 2>/dev/null; }

now() { date +%s.%N; }
# since BEGIN: seconds from then on.
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { print b - a }'; }

# make_files DIR SIZE COUNT: DIR/large of that size, and DIR/tree with so many files of 4 KiB, a hundred for
# each directory. No byte is a zero: no hole is left out.
make_files() {
    local i block
    bytes() { head -c "$1" /dev/zero | tr '\0' "$2"; }
    mkdir -p "$1/tree"
    bytes "$2" x >"$1/large"
    block=$(bytes 4096 y)
    for ((i = 0; i < $3; i++)); do
        ((i % 100)) || mkdir -p "$1/tree/d$((i / 100))"
        printf %s "$block" >"$1/tree/d$((i / 100))/f$i"
    done
}

# begin_files LOG WORDS…: a file system is served, with these words for `ulnet serve`; its process is $server.
begin_files() {
    local log=$1 end=$((SECONDS + 30)); shift
    "$ULNET" serve --fs lfs "$@" >"$log" & server=$!
    until grep -qs 'MDT0000_UUID: serving' "$log"; do
        [ "$SECONDS" -lt "$end" ] || { echo "ulnet serve did not start" >&2; exit 1; }
        sleep 0.05
    done
}
