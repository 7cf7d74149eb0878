#!/bin/sh
# Makes a root folder with tpu-agent in it, and lets `tpuagent check` judge it: see --help.
set -eu

usage() {
    cat <<'END'
Usage: image.sh [--suite SUITE] [OPTION]... ROOT PACKAGE

Installs PACKAGE (tpu-agent_VERSION_all.deb) in the image in the folder ROOT, in a chroot, and checks the image.
Needs root. With --suite ROOT is made first, by mmdebstrap; otherwise it is an image of yours, a mounted disk for example.

  --suite SUITE      bookworm, trixie, jammy, noble, …
  --mirror URL       where packages come from, for --suite (mmdebstrap's own choice)
  --components LIST  for --suite (main; Ubuntu has Docker in universe: main,universe)
  --packages LIST    what the image gets besides, separated by commas
                     (linux-image-cloud-amd64,systemd-sysv,docker.io,ca-certificates,curl; for Ubuntu
                     linux-gcp,linux-modules-extra-gcp,… ; without --suite only docker.io)
  --help             this text

Ends with 0 when the image is right, 1 when something in it is wrong, 2 when not everything could be looked at (these three
are what `tpuagent check` says), 3 when a step failed, 64 when it was called wrongly.
ROOT is no disk yet: what makes one of it (a partition, GRUB, update-grub) comes after this. It stays when a step failed.
END
}

misused() {
    printf 'image.sh: %s; image.sh --help\n' "$1" >&2
    exit 64
}

suite='' mirror='' components=main packages=''
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage && exit 0 ;;
    --suite | --mirror | --components | --packages)
        [ $# -gt 1 ] || misused "$1 needs a value"
        case $1 in
        --suite) suite=$2 ;;
        --mirror) mirror=$2 ;;
        --components) components=$2 ;;
        --packages) packages=$2 ;;
        esac
        shift 2
        ;;
    -*) misused "there is no option $1" ;;
    *) break ;;
    esac
done
[ $# -eq 2 ] || misused "it takes ROOT and PACKAGE"
root=$1 package=$2
[ -r "$package" ] || misused "cannot read $package"
[ "$(id -u)" = 0 ] || misused "it needs root"
if [ -z "$suite" ]; then
    if [ ! -d "$root/etc" ] || [ ! -d "$root/usr" ]; then
        misused "$root is no root of an image; --suite makes one"
    fi
elif [ -e "$root" ]; then
    [ -z "$(ls -A "$root")" ] || misused "$root is not empty, and --suite says to make it"
fi

# However this ends: what was mounted is unmounted, the last one first, and what was lent is taken away.
mounted='' lent=''
# shellcheck disable=SC2329  # the trap calls it
clean_up() {
    code=$?
    trap - EXIT
    for point in $mounted; do
        umount "$root/$point" || code=3
    done
    for file in $lent; do
        rm -f "$root/$file"
    done
    exit "$code"
}
trap clean_up EXIT
trap 'exit 3' HUP INT TERM

# Each step is `|| failed`, so that no code of a tool is taken for one of the check's.
failed() {
    printf 'image.sh: cannot %s\n' "$1" >&2
    exit 3
}

lend_mount() { # POINT, then what mount is told
    point=$1
    shift
    mkdir -p "$root/$point" || failed "make $root/$point"
    mount "$@" "$root/$point" || failed "mount $root/$point"
    mounted="$point $mounted"
}

in_image() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root" "$@" </dev/null
}

if [ -n "$suite" ]; then
    : "${packages:=linux-image-cloud-amd64,systemd-sysv,docker.io,ca-certificates,curl}"
    set -- --mode=root --variant=minbase --components="$components" --include="$packages" "$suite" "$root"
    mmdebstrap "$@" ${mirror:+"$mirror"} || failed "make a $suite in $root"
    lent="etc/resolv.conf etc/hostname" # it copies the builder's
fi

root=$(cd "$root" && pwd)
lend_mount proc -t proc proc
lend_mount sys -t sysfs -o ro sysfs # what a maintainer script does to a kernel must not reach this one
lend_mount dev --bind /dev
lend_mount run -t tmpfs tmpfs # with no sign of systemd: nothing is started

# The builder's way to names, and a word that forbids services; both go again.
names=$(in_image readlink -m /etc/resolv.conf) # often a link to a file in /run
if [ ! -s "$root$names" ] && [ -e /etc/resolv.conf ]; then
    lent="$lent $names"
    mkdir -p "$root${names%/*}"
    cp /etc/resolv.conf "$root$names"
fi
if [ ! -e "$root/usr/sbin/policy-rc.d" ]; then
    lent="$lent usr/sbin/policy-rc.d"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
fi
lent="$lent tmp/tpu-agent.deb"
cp "$package" "$root/tmp/tpu-agent.deb"

[ -n "$suite" ] || : "${packages:=docker.io}"
in_image apt-get update || failed "fetch the lists of packages"
# shellcheck disable=SC2046  # a word for each package
in_image apt-get install --yes --no-install-recommends -o Dpkg::Use-Pty=0 \
    $(echo "$packages" | tr , ' ') /tmp/tpu-agent.deb || failed "install $package"

# Nothing that belongs to one machine: each that is made from the image gets its own. Host keys are made anew by
# cloud-init or Google's guest agent; an image with neither needs a unit for that.
in_image apt-get clean || failed "clear the cache of packages"
rm -rf "$root"/var/lib/apt/lists/* "$root"/etc/ssh/ssh_host_*_key*
rm -f "$root/var/lib/dbus/machine-id" "$root/var/lib/systemd/random-seed"
: >"$root/etc/machine-id"

code=0
in_image tpuagent check --image / || code=$?
exit "$code"
