#!/bin/sh
# Fetches a stock Debian kernel and builds what the lab boots it with, once, into a cache folder.
# usage: tests/vm/prepare.sh        (root may also install the packages; others are told which are missing)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${UNCORK_VM_CACHE:-$HOME/.cache/uncork-vm}
packages="qemu-system-x86 pciutils busybox-static cpio kmod e2fsprogs acpica-tools gcc make libc6-dev libelf1"
modules="virtio_pci virtio_blk virtio_console 9pnet_virtio 9p overlay crc32c_generic ext4"

missing=""
for package in $packages; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: .* installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "not installed:$missing; run as root: apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    apt-get update -q
    apt-get install -y -q --no-install-recommends $missing
fi
PATH=$PATH:/usr/sbin:/sbin

# What is built depends on these files; the same files need no second build.
sources=$(cat "$here/prepare.sh" "$here/express.c" "$here"/modules/* "$here"/guest/init "$here/vmlinux.py" | sha256sum | cut -c1-16)
if [ -e "$cache/ready" ] && [ "$(cat "$cache/ready")" = "$sources" ]; then
    echo "the lab is ready in $cache"
    exit 0
fi
mkdir -p "$cache/debs" "$cache/system"
cd "$cache"
rm -f ready

dependency() { apt-cache depends "$1" | sed -n "s/^ *Depends: \($2\)$/\1/p" | head -1; }
image=$(dependency linux-image-amd64 'linux-image-[0-9].*')
[ -n "$image" ] || { apt-get update -q; image=$(dependency linux-image-amd64 'linux-image-[0-9].*'); }
version=${image#linux-image-}
common=$(dependency "linux-headers-$version" 'linux-headers-.*-common')
kbuild=$(dependency "linux-headers-$version" 'linux-kbuild-.*')
for package in "$image" "linux-headers-$version" "$common" "$kbuild"; do
    if ! ls debs/"${package}"_*.deb >/dev/null 2>&1; then
        (cd debs && apt-get -q download "$package")
        dpkg -x debs/"${package}"_*.deb system
    fi
done

# Booting the ELF kernel spares decompressing it under emulation, 2.7 s of a boot.
python3 "$here/vmlinux.py" "system/boot/vmlinuz-$version" vmlinux

# The stand-in modules (tests/vm/modules), built against the kernel's own headers without installing those.
headers=$cache/system/usr/src/linux-headers-$version
sed -i "s|include .*/usr/src/linux-headers|include $cache/system/usr/src/linux-headers|" "$headers/Makefile"
rm -rf build && cp -r "$here/modules" build
ln -sfn "$cache/system/usr/lib/$kbuild/scripts" "$headers/scripts"
ln -sfn "$cache/system/usr/lib/$kbuild/tools" "$headers/tools"
make -s -C "$headers" M="$cache/build" modules
mkdir -p "system/lib/modules/$version/extra"
cp build/*.ko "system/lib/modules/$version/extra/"
depmod -b system "$version"

cc -O1 -Wall -shared -fPIC -o express.so "$here/express.c"

# The first root: busybox and the modules that reach the second one, in the order to load them.
rm -rf root && mkdir -p root/bin root/modules root/proc root/sys root/dev root/host root/upper root/new
cp "$(command -v busybox)" root/bin/busybox
cp "$here/guest/init" root/init
chmod 755 root/init
number=10
for name in $modules; do
    for path in $(modprobe -d system -S "$version" --show-depends "$name" | sed -n 's/^insmod //p'); do
        file=$(basename "$path")
        if ! ls root/modules/*-"$file" >/dev/null 2>&1; then
            cp "$path" "root/modules/$number-$file"
            number=$((number + 1))
        fi
    done
done
(cd root && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz

echo "$version" >version
echo "$sources" >ready
echo "the lab is ready in $cache: Linux $version"
