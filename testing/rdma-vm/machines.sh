# The machines, sourced by `run`: their start, the links between them, commands in them, and the rows of
# the table. Links are TCP streams between two qemus, which lose nothing.

accel=${ACCEL:-tcg,thread=multi}
cpu=max
[ "${accel%%,*}" = kvm ] && cpu=host
base=$((20000 + RANDOM % 20000))
pids=()

start() { # start NAME NODE MEMORY LINK…, each LINK name:port offset:listen|connect:mtu
    local name=$1 node=$2 memory=$3 link id port mode mtu mac=0 nics=()
    shift 3
    for link in "$@"; do
        IFS=: read -r id port mode mtu <<< "$link"
        nics+=(-netdev "socket,id=$id,$mode=127.0.0.1:$((base + port))")
        nics+=(-device "virtio-net-pci,netdev=$id,mac=52:54:00:00:0$mac:0$node${mtu:+,host_mtu=$mtu}")
        mac=$((mac + 1))
    done
    mkfifo "$work/$name.in" "$work/$name.out" "$work/$name-monitor.in" "$work/$name-monitor.out"
    qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -m "$memory" -smp 1 -display none -no-reboot \
        -kernel "$vmlinuz" -initrd "$work/initrd" \
        -append "console=ttyS0 panic=-1 quiet no_timer_check mitigations=off node=$node" \
        "${nics[@]}" -device virtio-rng-pci \
        -serial "file:$work/$name.console" -serial "pipe:$work/$name" \
        -monitor "pipe:$work/$name-monitor" > "$work/$name.qemu" 2>&1 &
    pids+=($!)
}

open_machine() { # open_machine NAME: its lines; then wait until it answers
    exec {fd}<>"$work/$1.in"; printf -v "$1_in" %s "$fd"
    exec {fd}<>"$work/$1.out"; printf -v "$1_out" %s "$fd"
    exec {fd}<>"$work/$1-monitor.in"; printf -v "$1_monitor" %s "$fd"
    answer "$1" 600
}

answer() { # answer MACHINE SECONDS: output to $work/said, its exit code; $whole: it got all of the command
    local fd=${1}_out line until=$((SECONDS + $2))
    : > "$work/said"
    whole=1
    while [ $SECONDS -lt $until ]; do
        IFS= read -r -t 1 line <&"${!fd}" || continue
        line=${line%$'\r'}
        case $line in
            =done\ *|=ready\ *) return "${line#* }" ;;
            =again) whole=; return 125 ;;
        esac
        echo "$line" >> "$work/said"
    done
    echo "no answer within $2 s" >> "$work/said"
    return 125
}

on() { # on MACHINE SECONDS COMMAND
    local fd=${1}_in code try
    for try in 1 2 3 4 5; do
        printf '\n%s %s\n\n' "${#3}" "$3" >&"${!fd}"
        answer "$1" "$2"
        code=$?
        [ -n "$whole" ] && break
    done
    { echo "$1\$ $3"; cat "$work/said"; echo "# exit $code"; } >> "$work/transcript"
    return $code
}

cable() { # cable MACHINE LINK on|off
    local fd=${1}_monitor
    echo "set_link $2 $3" >&"${!fd}"
}

rows=()
failed=0
row() { # row STEP OUTCOME SEEN; FAILS makes the run fail
    rows+=("| $1 | $2 | \`$3\` |")
    echo "$(date +%T) $2: $1: $3" >&2
    [ "$2" = FAILS ] && failed=1
    return 0
}
seen() { grep -v '^ *$' "$work/said" | tail -n 1 | tr -s ' |' ' /' | cut -c 1-110; }
matched() { grep -E "$1" "$work/said" | head -n 1 | tr -s ' |' ' /' | sed 's/^ //' | cut -c 1-110; }
check() { # check STEP MACHINE SECONDS COMMAND PATTERN
    if on "$2" "$3" "$4" && grep -Eq "$5" "$work/said"; then
        row "$1" holds "$(matched "$5")"
    else
        row "$1" FAILS "$(seen)"
    fi
}
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
