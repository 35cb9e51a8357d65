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

# Runs something for a minute at most.
run() { timeout 60 ${REALTIME:+chrt -f 10} "$@"; }

served=
# Starts a server in the background, and gives it the time to listen.
serve() {
    run "$@" >/dev/null 2>&1 &
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
