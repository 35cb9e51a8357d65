#!/usr/bin/env bash
# Copies files into a file system of `ulnet serve` and out of it, over the loopback, in turns with LNet bulk
# and empty calls of the same program, and prints medians against the bars that the project has set itself.
# Nothing is kept but what it prints.
#
#   bench/files.sh                     three rounds of 4 GiB and of 20,000 files, some minutes after the build
#   ROUNDS=5 LARGE=1G FILES=2000 bench/files.sh
#   DIR=/srv/scratch bench/files.sh    where files and storage are; in memory (/dev/shm) if not given
#   ULNET=path/to/ulnet                the program to measure; built if not given
#   STATIC=path/to/ulnet               the static program, as packaging/static builds it, for its size
#
# As root it copies a file of four stripes over two rails of 1 Gbit/s as well, held against the line.
set -u
cd "$(dirname "$0")/.."
. bench/lib.sh

ROUNDS=${ROUNDS:-3}
LARGE=${LARGE:-4G}
FILES=${FILES:-20000}
SECONDS_EACH=${SECONDS_EACH:-2}
PORT=${PORT:-13980}
need_ulnet
need jq || exit 2
dir=$(mktemp -d "${DIR:-/dev/shm}/ulnet-files-XXXXXX") || exit 2
found=$dir/found
server=
a=ulnet-files-a-$$ b=ulnet-files-b-$$
clean() {
    [ -n "$server" ] && kill -9 "$server" 2>/dev/null && wait "$server" 2>/dev/null
    no_rails "$a" "$b"
    rm -rf "$dir"
}
trap clean EXIT
trap 'exit 1' INT TERM

export ULNET_LUSTRE=127.0.0.1@tcp:/lfs
lustre() { "$ULNET" lustre "$@" --port $((PORT + 1)); }

# timed NAME WORDS…: seconds that a command takes, and its resident memory at most, in KiB.
timed() {
    local name=$1 begin pid most=0 here; shift
    begin=$(now)
    "$ULNET" lustre "$@" --port $((PORT + 1)) >/dev/null & pid=$!
    while here=$(awk '/VmHWM/ { print $2 }' "/proc/$pid/status" 2>/dev/null) && [ -n "$here" ]; do
        most=$here
        sleep 0.02
    done
    wait "$pid" || { echo "$*: it has failed" >&2; exit 1; }
    note "$name" "$(since "$begin")"
    note "${name}_kib" "$most"
}

bulk() {
    local out
    out=$(run "$ULNET" perf local --test put,get --size 1M --window 16 --seconds "$SECONDS_EACH" --port "$PORT" --json) || return
    note put "$(jq '[.rows[] | select(.test=="put")][0].mib_per_second' <<<"$out")"
    note get "$(jq '[.rows[] | select(.test=="get")][0].mib_per_second' <<<"$out")"
    out=$(run "$ULNET" perf rpc --size 1M --json --seconds "$SECONDS_EACH" --port "$PORT") || return
    note calls "$(jq '.rows[] | select(.what=="rate").per_second' <<<"$out")"
}

make_files "$dir" "$LARGE" "$FILES"
size=$(stat -c %s "$dir/large")
mkdir "$dir/many"
for ((i = 0; i < FILES; i++)); do : >"$dir/many/name-$i"; done

echo "machine: $(nproc) processors, Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$("$ULNET" --version); $ROUNDS rounds; storage on $(stat -f -c %T "$dir")"
for round in $(seq "$ROUNDS"); do
    bulk
    begin_files "$dir/log" "$dir/store" --osts 1 --listen 127.0.0.1@tcp --port $((PORT + 1))
    timed large_in cp "file:$dir/large" /large
    timed large_out cp /large "file:$dir/out"
    cmp "$dir/large" "$dir/out" || exit 1
    rm "$dir/out"
    # What the storage alone takes for it, with no network.
    begin=$(now); cp "$dir/large" "$dir/out"; note local "$(since "$begin")"; rm "$dir/out"
    lustre rm /large
    timed tree_in cp -r "file:$dir/tree" /tree
    timed tree_out cp -r /tree "file:$dir/tree-out"
    diff -r "$dir/tree" "$dir/tree-out" || exit 1
    rm -r "$dir/tree-out"
    lustre cp -r "file:$dir/many" /many
    timed list_long ls -l /many
    timed list ls /many
    begin=$(now)
    # The first line is the directory itself.
    { read -r _; read -r _; } < <(lustre find /many 2>/dev/null)
    note find_first "$(awk -v s="$(since "$begin")" 'BEGIN { print s * 1000 }')"
    kill "$server"; wait "$server" 2>/dev/null; server=
    rm -r "$dir/store"
    echo "round $round done, load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
done

# A file of four stripes over two rails, in and out.
rails() {
    local there=10.99.0.1@tcp,10.99.1.1@tcp1 own=10.99.0.2@tcp,10.99.1.2@tcp1 begin
    inside() { ip netns exec "$b" "$ULNET" lustre "$@" --source "$own"; }
    two_rails "$a" "$b" || return
    ip netns exec "$a" "$ULNET" serve --fs lfs "$dir/store" --osts 4 --listen "$there" >"$dir/log" & server=$!
    sleep 2
    export ULNET_LUSTRE=$there:/lfs
    for _ in $(seq "$ROUNDS"); do
        begin=$(now)
        inside cp "file:$dir/large" /large --stripe-count 4 --stripe-size 1M || return
        note rails_in "$(since "$begin")"
        begin=$(now); inside cp /large "file:$dir/out" || return
        note rails_out "$(since "$begin")"
        cmp "$dir/large" "$dir/out" || return
        rm "$dir/out"; inside rm /large
    done
    kill "$server"; wait "$server" 2>/dev/null; server=
}
if [ "$(id -u)" = 0 ] && need ip && need tc; then rails; fi

# per SECONDS COUNT: so many each second.
per() { [ -n "$1" ] && awk -v s="$1" -v n="$2" 'BEGIN { printf "%.1f", n / s }'; }
mib=$((size >> 20))
in=$(per "$(m large_in)" "$mib") out=$(per "$(m large_out)" "$mib")
tin=$(per "$(m tree_in)" "$FILES") tout=$(per "$(m tree_out)" "$FILES")
echo "one file of $mib MiB: in $in, out $out MiB/s; GET $(m get), PUT $(m put) MiB/s"
echo "the same by cp, with no network: $(per "$(m local)" "$mib") MiB/s"
echo "$FILES files of 4 KiB: in $tin, out $tout a second; empty calls $(m calls) a second"
echo "$FILES names: ls $(m list) s, ls -l $(m list_long) s"
echo
bar "cp of one file in / GETs of 1 MiB" "$(div "$in" "$(m get)")" '>=' 0.85
bar "cp of one file out / PUTs of 1 MiB" "$(div "$out" "$(m put)")" '>=' 0.85
# Two rails of 1 Gbit/s are 238.4 MiB/s.
bar "cp in of four stripes over two rails / line" "$(div "$(per "$(m rails_in)" "$mib")" 238.4)" '>=' 0.9
bar "cp out of four stripes over two rails / line" "$(div "$(per "$(m rails_out)" "$mib")" 238.4)" '>=' 0.9
bar "files of 4 KiB in / empty calls, a second" "$(div "$tin" "$(m calls)")" '>=' 0.3
bar "files of 4 KiB out / empty calls, a second" "$(div "$tout" "$(m calls)")" '>=' 0.4
bar "find: ms from its start to the first of $FILES names" "$(m find_first)" '<=' 200
for what in large_in large_out tree_in tree_out; do
    kib=$(m "${what}_kib")
    bar "resident memory, $what, MiB" "${kib:+$((kib >> 10))}" '<=' 64
done
if [ -n "${STATIC:-}" ]; then
    strip -o "$dir/stripped" "$STATIC" || exit 1
    bar "static program, stripped, MiB" "$(awk -v b="$(stat -c %s "$dir/stripped")" 'BEGIN { printf "%.1f", b / 1048576 }')" '<=' 15
fi
sum_up
