# The image that all machines start from, sourced by `run`: a kernel from its package, busybox, the
# program with its libraries, tools of RDMA. Leaves $vmlinuz and $work/initrd.

lib=/usr/lib/$(uname -m)-linux-gnu

# What is needed, and the packages that have it.
check_parts() {
    local tool
    for tool in qemu-system-x86_64 cpio gzip modprobe depmod ldd rdma ip ibv_devinfo; do
        command -v "$tool" >/dev/null || skip "$tool is not installed (packages qemu-system-x86 cpio \
kmod iproute2 ibverbs-utils)"
    done
    busybox=$(command -v busybox) || skip "busybox is not installed (package busybox-static)"
    ldd "$busybox" >/dev/null 2>&1 && skip "$busybox is not static (package busybox-static)"
    [ -e "$lib/librdmacm.so.1" ] || skip "librdmacm.so.1 is not there (package librdmacm1)"
    [ -e "$lib/libibverbs/librxe-rdmav34.so" ] || skip "no provider for rxe (package ibverbs-providers)"
    for program in "${ULNET:-}" "$root/target/release/ulnet" "$root/target/debug/ulnet"; do
        [ -x "$program" ] && break
    done
    [ -x "$program" ] || skip "no program: cargo build -p ulnet"
    ldd "$program" >/dev/null 2>&1 || skip "$program is statically linked and loads no RDMA library"
}

find_kernel() {
    local package
    kernel=${KERNEL:-}
    if [ -z "$kernel" ]; then
        command -v apt-get >/dev/null || skip "no KERNEL=DIR, and no apt-get to download one"
        package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }')
        [ -n "$package" ] || skip "apt knows no package linux-image-amd64"
        (cd "$work" && apt-get download "$package" >/dev/null 2>&1) || skip "$package: no download"
        kernel=$work/kernel
        dpkg -x "$work"/linux-image-*.deb "$kernel" || skip "$package: not unpacked"
    fi
    vmlinuz=$(ls "$kernel"/boot/vmlinuz-* 2>/dev/null | head -n 1)
    [ -n "$vmlinuz" ] || skip "$kernel: no boot/vmlinuz-*"
    version=${vmlinuz##*/vmlinuz-}
    depmod -b "$kernel" "$version" 2>/dev/null
}

libraries() {
    ldd "$1" | awk '/=> \// { print $3 } $1 ~ /^\// { print $1 }' | while read -r file; do
        mkdir -p "$image$(dirname "$file")" && cp -L "$file" "$image$file"
    done
}

add() { # add FILE AS
    cp -L "$1" "$image/bin/$2"
    libraries "$1"
}

make_image() {
    local module tool name file
    image=$work/image
    mkdir -p "$image"/{bin,proc,sys,dev,run,tmp,modules,etc/libibverbs.d} "$image$lib"
    cp "$busybox" "$image/bin/busybox"
    ln -s busybox "$image/bin/sh"
    for module in crc32_generic virtio_pci virtio_net virtio_rng rdma_ucm ib_uverbs rdma_rxe; do
        modprobe -d "$kernel" -S "$version" --show-depends "$module" 2>/dev/null
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
        cp "$file" "$image/modules/"
        basename "$file" >> "$image/modules/order"
    done
    grep -q rdma_rxe "$image/modules/order" || skip "kernel $version has no module rdma_rxe"
    for tool in ip rdma ibv_devinfo; do add "$(command -v "$tool")" "$tool"; done
    for tool in ib_send_lat ib_write_bw; do
        command -v "$tool" >/dev/null && add "$(command -v "$tool")" "$tool"
    done
    add "$program" ulnet
    strip "$image/bin/ulnet" 2>/dev/null
    for name in lnetd lnetctl lst; do ln -s ulnet "$image/bin/$name"; done
    for file in librdmacm.so.1 libibverbs.so.1; do
        cp -L "$lib/$file" "$image$lib/"
        libraries "$lib/$file"
    done
    mkdir -p "$image$lib/libibverbs"
    cp -L "$lib"/libibverbs/librxe-rdmav34.so "$image$lib/libibverbs/"
    cp /etc/libibverbs.d/rxe.driver "$image/etc/libibverbs.d/"
    cp "$here/init" "$image/init"
    chmod +x "$image/init"
    (cd "$image" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd"
}
