# What is played, sourced by `run`: one function for each step, each from fresh daemons, so that every
# one of them can be played alone.
#
# Networks: 10.0.0 and 10.0.2 are soft-RoCE between a and b, 10.0.1 is TCP between them, 10.0.3 is TCP
# between a and the router, 10.0.4 soft-RoCE between the router and b.
#
# Emulated processors take milliseconds for a packet: a call of the selftest may take half of its run.

fresh() { # fresh MACHINE NET:INTERFACE…
    local machine=$1 net
    shift
    on "$machine" 120 lnet
    for net in "$@"; do
        on "$machine" 60 "lnetctl net add --net ${net%%:*} --if ${net##*:}"
    done
}
ping_until() { # ping_until NID: a command that gives the peer half a minute
    echo "for n in 1 2 3 4 5 6; do lnetctl ping $1 && break; sleep 5; done"
}
selftest() { # selftest NID SECONDS SIZE CONCURRENCY
    echo "lst run --quick $1 --seconds $2 --size $3 --concurrency $4 --check full"
}
sent() { # sent MACHINE NID: messages that left by an interface
    on "$1" 60 "lnetctl net show -v 1" || return
    awk -v nid="$2" '$2 == "nid:" { at = $3 } /send_count/ && at == nid { print $2; exit }' "$work/said"
}

step_basic() {
    fresh a o2ib:eth0
    fresh b o2ib:eth0
    check "soft-RoCE" a 30 "ibv_devinfo -d rxe0" "PORT_ACTIVE"
    check "o2ib interface" a 30 "lnetctl net show --net o2ib -v 4" "nid: 10.0.0.1@o2ib"
    check "recorded tunables" a 30 "lnetctl net show --net o2ib -v 4 | tr -d '\n '" \
        "peercredits_hiw:4concurrent_sends:8map_on_demand:truefmr_pool_size:512"
    check "ping from a" a 60 "lnetctl ping 10.0.0.2@o2ib" "10.0.0.2@o2ib"
    check "ping from b" b 60 "lnetctl ping 10.0.0.1@o2ib" "10.0.0.1@o2ib"
    check "discovery" a 60 "lnetctl discover 10.0.0.2@o2ib" "Multi-Rail: true"
    check "selftest 1 KiB, full checks" a 120 "$(selftest 10.0.0.2@o2ib 8 1K 4)" "^write .* 0 errors"
    check "selftest 64 KiB by RDMA, full checks" a 120 "$(selftest 10.0.0.2@o2ib 15 64K 2)" \
        "^write .* 0 errors"
    check "selftest 1 MiB by RDMA, full checks" a 200 "$(selftest 10.0.0.2@o2ib 30 1M 1)" \
        "^write .* 0 errors"
    check "memory that is read twice is registered once" a 20 \
        "lnetctl net show --net o2ib -v 5" "registrations_found: [1-9]"
}

# Times on the second device, where no daemon listens. Each tool of perftest and the program in turns.
perftest() { # perftest TOOL OPTIONS: the row of figures
    on b 10 "$1 -d rxe1 -x 1 -F $2 > /run/perftest 2>&1 &"
    on a 120 "sleep 2; $1 -d rxe1 -x 1 -F $2 10.0.1.2 2>&1 | grep -v '^ *\$'" ||
        on b 10 "cat /run/perftest; killall $1"
}
# The depth of connections is the one that kernel nodes have: more receive buffers take seconds to post.
ours() { # ours TEST SIZE OPTIONS: JSON
    on a 150 "ulnet perf client --net o2ib --inline --peer-credits 8 --if rxe1 --server 10.0.2.2 \
--test $1 --size $2 --json $3"
}
figure() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "$work/said" | head -n 1; }
against() { # against NAME OURS THEIRS OURS/THEIRS-BAR UNIT
    if [ -n "$2" ] && [ -n "$3" ]; then
        row "$1" seen "$(awk -v a="$2" -v b="$3" -v u="$5" -v bar="$4" 'BEGIN {
            printf "%.4g against %.4g %s: ratio %.2f (bar %s)", a, b, u, a / b, bar }')"
    else
        row "$1" SKIPPED "${2:-no figure of ours}, ${3:-none of perftest}: $(seen)"
    fi
}
step_times() {
    local n
    if ! command -v ib_send_lat >/dev/null; then
        row "times beside perftest" SKIPPED "ib_send_lat is not installed (package perftest)"
        return
    fi
    on a 30 "killall -9 lnetd"
    on b 30 "killall -9 lnetd"
    on a 30 "ulnet perf client --help | grep -c -e --net" || {
        perftest ib_send_lat "-s 8 -n 300"
        row "for comparison: ib_send_lat, 8 bytes one way" seen \
            "$(awk '$1 == 8 && NF > 5 { print $5 }' "$work/said") us"
        perftest ib_write_bw "-s 1048576 -n 30 -t 8"
        row "for comparison: ib_write_bw, 1 MiB" seen \
            "$(awk '$1 == 1048576 && NF > 3 { print $4 }' "$work/said") MiB/s"
        row "PUT and GET beside perftest" SKIPPED "ulnet perf of this program speaks tcp alone"
        return
    }
    for file in lat put get send write; do : > "$work/$file"; done
    for ((n = 0; n < rounds; n++)); do
        # The exchange of addresses goes by the TCP network: by the connection manager it was refused.
        perftest ib_send_lat "-s 8 -n 300"
        awk '$1 == 8 && NF > 5 { print $5 }' "$work/said" >> "$work/send"
        perftest ib_write_bw "-s 1048576 -n 30 -t 8"
        awk '$1 == 1048576 && NF > 3 { print $4 }' "$work/said" >> "$work/write"
        on b 10 "ulnet perf server --net o2ib --inline --peer-credits 8 --if rxe1 > /run/perf 2>&1 & sleep 4"
        ours latency 8 "--count 300 --seconds 30"
        figure p50 >> "$work/lat"
        ours put 1M "--window 8 --count 30 --seconds 60"
        figure mib_per_second >> "$work/put"
        ours get 1M "--window 8 --count 30 --seconds 60"
        figure mib_per_second >> "$work/get"
        on b 30 "cat /run/perf; kill %% 2>/dev/null; killall ulnet; sleep 1"
    done
    local lat
    lat=$(median < "$work/lat")
    lat=${lat:+$(awk -v ns="$lat" 'BEGIN { print ns / 1000 }')}
    against "8-byte PUT one way / ib_send_lat" "$lat" "$(median < "$work/send")" "1.25 at most" us
    against "1 MiB PUT / ib_write_bw" "$(median < "$work/put")" "$(median < "$work/write")" \
        "0.9 at least" MiB/s
    against "1 MiB GET / ib_write_bw" "$(median < "$work/get")" "$(median < "$work/write")" \
        "0.9 at least" MiB/s
}

step_rails() {
    local before after
    fresh a o2ib:eth0 o2ib:eth2
    fresh b o2ib:eth0 o2ib:eth2
    check "two devices as rails: discovery" a 60 "lnetctl discover 10.0.0.2@o2ib" "10.0.2.2@o2ib"
    before=$(sent a 10.0.2.1@o2ib)
    check "rails: selftest" a 120 "$(selftest 10.0.0.2@o2ib 15 16K 4)" "^write .* 0 errors"
    after=$(sent a 10.0.2.1@o2ib)
    if [ "${after:-0}" -gt "$((${before:-0} + 10))" ]; then
        row "rails: both carry messages" holds "10.0.2.1@o2ib has sent $before, then $after"
    else
        row "rails: both carry messages" FAILS "10.0.2.1@o2ib has sent ${before:-?}, then ${after:-?}"
    fi
    # b loses the carrier; a has no report and has to find out.
    (sleep 10; cable b rdma off) &
    check "rails: cable out under load, no report here" a 150 "$(selftest 10.0.0.2@o2ib 30 16K 4)" \
        "^write .* 0 errors"
    check "rails: the other port is down" b 30 "lnetctl net show --net o2ib" "status: down"
    check "rails: the other rail carries on" a 60 "lnetctl ping 10.0.2.2@o2ib" "10.0.2.2@o2ib"
    cable b rdma on
    sleep 8
    check "rails: cable in, both ports up" b 30 \
        "lnetctl net show --net o2ib | grep -c 'status: up'" "^2"
    check "rails: cable in, ping by the first" a 90 "$(ping_until 10.0.0.2@o2ib)" "10.0.0.2@o2ib"
}

step_tcp() {
    fresh a o2ib:eth0 tcp:eth1
    fresh b o2ib:eth0 tcp:eth1
    check "tcp beside o2ib" a 60 "lnetctl ping 10.0.1.2@tcp" "10.0.0.2@o2ib"
    on a 60 "lnetctl discover 10.0.0.2@o2ib"
    cable a rdma off
    sleep 8
    check "cable out: port is down" a 30 "lnetctl net show --net o2ib" "status: down"
    check "cable out: messages by tcp" a 120 "$(selftest 10.0.0.2@o2ib 20 16K 2)" "^write .* 0 errors"
    cable a rdma on
    sleep 8
    check "cable in: port is up" a 30 "lnetctl net show --net o2ib" "status: up"
    check "cable in: ping" a 90 "$(ping_until 10.0.0.2@o2ib)" "10.0.0.2@o2ib"
}

step_restart() {
    fresh a o2ib:eth0
    fresh b o2ib:eth0
    check "before the kill" a 60 "$(ping_until 10.0.0.2@o2ib)" "10.0.0.2@o2ib"
    fresh b o2ib:rxe0
    check "kill and restart: another incarnation" a 120 "$(ping_until 10.0.0.2@o2ib)" "10.0.0.2@o2ib"
}

# Memory of the process, KiB: its own, pinned parts of that, and what its devices have mapped into it.
memory_of() { # memory_of MACHINE
    on "$1" 30 "cat /proc/\$(pidof lnetd)/status" || return
    awk '/^RssAnon:/ { own = $2 } /^VmPin:/ { pin = $2 } /^Rss(File|Shmem):/ { mapped += $2 }
        END { print own, pin, mapped }' "$work/said"
}
step_memory() {
    local own pin mapped own_after pin_after mapped_after count
    on a 120 lnet
    on b 120 lnet
    on a 60 "lnetctl net add --net o2ib --if eth0 --conns-per-peer 100"
    on b 60 "lnetctl net add --net o2ib --if eth0 --conns-per-peer 1"
    read -r own pin mapped <<< "$(memory_of a)"
    on a 120 "$(ping_until 10.0.0.2@o2ib)"
    on a 300 "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; \
do lnetctl ping 10.0.0.2@o2ib > /dev/null; lnetctl net show --net o2ib -v 5 | grep -q 'connections: 100' && break; sleep 2; done; \
lnetctl net show --net o2ib -v 5 | grep connections:"
    count=$(sed -n 's/.*connections: \([0-9]*\).*/\1/p' "$work/said")
    read -r own_after pin_after mapped_after <<< "$(memory_of a)"
    if [ "${count:-0}" -gt 1 ] && [ -n "${mapped_after:-}" ]; then
        row "memory of $count idle connections, each" seen "$(awk -v n="$count" -v o="$own" -v p="$pin" \
            -v m="$mapped" -v O="$own_after" -v P="$pin_after" -v M="$mapped_after" 'BEGIN {
            printf "pinned %.1f KiB, queues of the device %.1f KiB, the rest %.1f KiB",
                (P - p) / n, (M - m) / n, (O - o - (P - p)) / n }')"
    else
        row "memory of connections" FAILS "connections ${count:-?}, $(seen)"
    fi
}

step_router() {
    fresh a tcp1:eth3
    fresh b o2ib1:eth3
    fresh c tcp1:eth1 o2ib1:eth0
    on c 60 "lnetctl set routing 1"
    on a 60 "lnetctl route add --net o2ib1 --gateway 10.0.3.3@tcp1"
    on b 60 "lnetctl route add --net tcp1 --gateway 10.0.4.3@o2ib1"
    check "router: gateway is up" a 90 \
        "for n in 1 2 3 4 5 6; do lnetctl route show -v | grep -q 'state: up' && break; sleep 5; done; lnetctl route show -v" \
        "state: up"
    check "router tcp to o2ib: ping" a 90 "$(ping_until 10.0.4.2@o2ib1)" "10.0.4.2@o2ib1"
    check "router o2ib to tcp: ping" b 90 "$(ping_until 10.0.3.1@tcp1)" "10.0.3.1@tcp1"
    check "router: selftest 64 KiB, full checks" a 150 "$(selftest 10.0.4.2@o2ib1 20 64K 2)" \
        "^write .* 0 errors"
    check "router: what it has forwarded" c 30 "lnetctl stats show" "route_count: [1-9]"
}

# The network interface below the second device goes, and the device with it. The kernel waits with that
# until no program has it open.
pid_of() { # pid_of MACHINE: of its daemon
    on "$1" 30 "pidof lnetd" && grep -E '^[0-9]+$' "$work/said"
}
step_removal() {
    fresh a o2ib:eth0 o2ib:eth2
    fresh b o2ib:eth0 o2ib:eth2
    on a 60 "lnetctl discover 10.0.0.2@o2ib"
    on b 30 "dev=\$(basename \$(readlink /sys/class/net/eth2/device)); echo \$dev; \
(echo \$dev > /sys/bus/virtio/drivers/virtio_net/unbind; echo unbound > /run/unbound) & sleep 5"
    check "device taken away: its interface is down" b 30 "lnetctl net show --net o2ib" "status: down"
    check "device taken away: no error, by the other one" a 120 \
        "$(selftest 10.0.0.2@o2ib 20 16K 2)" "^write .* 0 errors"
    check "device taken away: the node works on" b 60 "lnetctl ping 10.0.0.1@o2ib" "10.0.0.1@o2ib"
    on b 30 "cat /run/unbound"
    if grep -q '^unbound' "$work/said"; then
        row "device taken away: released by the program" holds unbound
    else
        row "device taken away: released by the program" seen "no: the kernel waits for the program's end"
        on b 60 "killall -9 lnetd; sleep 8"
        check "device taken away: gone with the program" b 30 "cat /run/unbound" "^unbound"
    fi
    on b 60 "echo \$dev > /sys/bus/virtio/drivers/virtio_net/bind; sleep 2; roce eth2 10.0.2.2/24 rxe1"
    [ -n "$(pid_of b)" ] || fresh b o2ib:eth0 o2ib:eth2
    sleep 8
    check "device given back: its interface is up" b 30 \
        "lnetctl net show --net o2ib | grep -c 'status: up'" "^2"
    check "device given back: ping" a 120 "$(ping_until 10.0.2.2@o2ib)" "10.0.2.2@o2ib"
}
