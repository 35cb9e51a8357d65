#!/usr/bin/env bash
# Copies the same files with `ulnet lustre cp`, with rsync over ssh and with libnfs, in turns over the loopback
# of one machine, and prints medians and their ratios. The NFS server is nfs-ganesha, in user space as `ulnet
# serve` is, without Kerberos. Nothing is kept but what it prints.
#
#   bench/neighbours.sh                three rounds of 1 GiB and of 20,000 files, as root
#   ROUNDS=5 LARGE=4G FILES=2000 bench/neighbours.sh
#   DIR=/srv/scratch bench/neighbours.sh   where files and storage are; in memory (/dev/shm) if not given
#   ULNET=path/to/ulnet                the program to measure; built if not given
#
# Debian has what it needs in rsync, openssh-server, libnfs-utils, nfs-ganesha-vfs and rpcbind; rows of what is
# missing are left out. It runs in a network namespace of its own, where nothing else can be reached.
set -u
cd "$(dirname "$0")/.."
. bench/lib.sh

need_ulnet
need unshare || exit 2
[ "$(id -u)" = 0 ] || { echo "$0: needs root, for a network namespace and servers in it" >&2; exit 2; }
if [ -z "${INSIDE:-}" ]; then
    INSIDE=1 ULNET=$ULNET exec unshare --net --mount --pid --fork --kill-child "$0"
fi
# Servers keep their marks of who is running in /run.
mount -t proc proc /proc && mount -t tmpfs run /run && ip link set lo up || exit 2

ROUNDS=${ROUNDS:-3}
LARGE=${LARGE:-1G}
FILES=${FILES:-20000}
dir=$(mktemp -d "${DIR:-/dev/shm}/ulnet-neighbours-XXXXXX") || exit 2
found=$dir/found
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

# timed NAME WORDS…: seconds that a command takes.
timed() {
    local name=$1 begin; shift
    begin=$(now)
    "$@" >/dev/null 2>"$dir/errors" || { echo "$*: it has failed" >&2; cat "$dir/errors" >&2; return 1; }
    note "$name" "$(since "$begin")"
}

export ULNET_LUSTRE=127.0.0.1@tcp:/lfs
lustre() { "$ULNET" lustre "$@"; }
mkdir -p "$dir/ssh" "$dir/nfs" "$dir/keys"
begin_files "$dir/log" "$dir/store" --osts 1 --listen 127.0.0.1@tcp

shell=
if need rsync && need ssh && sshd=$(command -v sshd || ls /usr/sbin/sshd); then
    ssh-keygen -q -t ed25519 -N '' -f "$dir/keys/host" && ssh-keygen -q -t ed25519 -N '' -f "$dir/keys/own"
    # The user's own settings stay out of it.
    mkdir -p /run/sshd
    cat >"$dir/keys/sshd" <<-X
	Port 2222
	HostKey $dir/keys/host
	AuthorizedKeysFile $dir/keys/own.pub
	PermitRootLogin yes
	StrictModes no
	UsePAM no
	PidFile none
	X
    "$sshd" -f "$dir/keys/sshd" -E "$dir/keys/log"
    shell="ssh -F none -q -p 2222 -i $dir/keys/own -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
fi
nfs=
if need nfs-cp && need ganesha.nfsd && need rpcbind; then
    rpcbind
    cat >"$dir/keys/ganesha" <<-X
	NFS_CORE_PARAM { NFS_Port = 2049; MNT_Port = 2050; Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; }
	NFSV4 { Graceless = true; }
	NFS_KRB5 { Active_krb5 = false; }
	EXPORT { Export_Id = 1; Path = $dir/nfs; Pseudo = /nfs; Access_Type = RW; Squash = none; SecType = sys;
	         Protocols = 3; Transports = TCP; FSAL { Name = VFS; } }
	X
    ganesha.nfsd -F -f "$dir/keys/ganesha" -L "$dir/keys/ganesha.log" -p "$dir/keys/ganesha.pid" &
    nfs="nfs://127.0.0.1$dir/nfs/large?nfsport=2049&mountport=2050&uid=0&gid=0"
    sleep 4
fi

make_files "$dir" "$LARGE" "$FILES"
size=$(stat -c %s "$dir/large")

echo "machine: $(nproc) processors, Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$("$ULNET" --version); $ROUNDS rounds; storage on $(stat -f -c %T "$dir")"
for round in $(seq "$ROUNDS"); do
    timed large_in lustre cp "file:$dir/large" /large
    timed large_out lustre cp /large "file:$dir/out"
    cmp "$dir/large" "$dir/out" || exit 1
    lustre rm /large; rm "$dir/out"
    timed tree_in lustre cp -r "file:$dir/tree" /tree
    timed tree_out lustre cp -r /tree "file:$dir/tree-out"
    diff -r "$dir/tree" "$dir/tree-out" || exit 1
    lustre rm -r /tree; rm -r "$dir/tree-out"
    if [ -n "$shell" ]; then
        timed rsync_large_in rsync -a -e "$shell" "$dir/large" "127.0.0.1:$dir/ssh/large"
        timed rsync_large_out rsync -a -e "$shell" "127.0.0.1:$dir/ssh/large" "$dir/out"
        timed rsync_tree_in rsync -a -e "$shell" "$dir/tree/" "127.0.0.1:$dir/ssh/tree"
        timed rsync_tree_out rsync -a -e "$shell" "127.0.0.1:$dir/ssh/tree/" "$dir/tree-out"
        rm -rf "$dir/ssh/large" "$dir/ssh/tree" "$dir/out" "$dir/tree-out"
    fi
    if [ -n "$nfs" ]; then
        timed nfs_large_in nfs-cp "$dir/large" "$nfs"
        timed nfs_large_out nfs-cp "$nfs" "$dir/out"
        rm -f "$dir/nfs/large" "$dir/out"
    fi
    echo "round $round done, load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
done

# rate NAME COUNT: so many each second.
rate() { local s; s=$(m "$1"); [ -n "$s" ] && awk -v s="$s" -v n="$2" 'BEGIN { printf "%.0f", n / s }'; }
mib=$((size >> 20))
echo "one file of $mib MiB, in and out, MiB/s: $(rate large_in $mib) and $(rate large_out $mib);" \
    "rsync $(rate rsync_large_in $mib) and $(rate rsync_large_out $mib);" \
    "nfs-cp $(rate nfs_large_in $mib) and $(rate nfs_large_out $mib)"
echo "$FILES files of 4 KiB, in and out, a second: $(rate tree_in "$FILES") and $(rate tree_out "$FILES");" \
    "rsync $(rate rsync_tree_in "$FILES") and $(rate rsync_tree_out "$FILES")"
echo
for way in in out; do
    bar "one file $way / rsync over ssh" "$(div "$(m rsync_large_$way)" "$(m large_$way)")" '>=' 2
    bar "one file $way / nfs-cp" "$(div "$(m nfs_large_$way)" "$(m large_$way)")" '>=' 2
    bar "tree $way / rsync over ssh" "$(div "$(m rsync_tree_$way)" "$(m tree_$way)")" '>=' 2
done
sum_up
