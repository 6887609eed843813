#!/usr/bin/env bash
# Packs a binary as a release would, installs the archive and the Debian package in a fresh Debian, uses them there, and
# removes them without a trace.
#
#   tests/packages/run.sh [SANDSTORM]   the debug build, if none is named
#   tests/packages/run.sh static        a debug build that is linked statically as a release is
#
# The Debian is made once, through the mirror that this machine's apt uses, and kept as an archive in
# ${XDG_CACHE_HOME:-~/.cache}/sandstorm/packages. Needs root: it mounts, and the package makes a user there.
set -euo pipefail
cd "$(dirname "$0")/../.."

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/sandstorm/packages
TARGET=${CARGO_TARGET_DIR:-target}
# What the package depends on and recommends, but for systemd, whose tools exist without it; the shells and the reader whose
# files it brings; what the checks use.
INCLUDED=systemd-standalone-sysusers,systemd-standalone-tmpfiles,passwd,ca-certificates,mount,curl
INCLUDED+=,bash-completion,zsh,fish,mandoc

fail() {
  echo "packages: $1" >&2
  exit 1
}

# Where nothing may be skipped, a machine that cannot do this has failed.
skip() {
  [[ -z ${SANDSTORM_REQUIRE_ALL:-} ]] || fail "nothing may be skipped here, but: $1"
  echo "packages: skipped: $1"
  exit 0
}

# Makes the Debian, if there is none of these packages yet, and sets `debian` to its archive.
fetch_debian() {
  local release sources
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  # shellcheck disable=SC2016
  sources=$(apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    sort -u)
  [[ -n $sources ]] || skip "this machine's apt knows no mirror of Debian"
  debian=$CACHE/$release-$(cksum <<<"$INCLUDED" | cut -d' ' -f1).tar
  mkdir -p "$CACHE"
  exec 9>"$CACHE/lock"
  flock 9
  if [[ ! -e $debian ]]; then
    echo "packages: making a Debian $release"
    local new=$CACHE/new.tar pause
    for pause in 10 30 0; do
      mmdebstrap --quiet --variant=essential --include="$INCLUDED" --format=tar "$release" "$new" <<<"$sources" && break
      [[ $pause -gt 0 ]] || fail "no Debian could be made"
      echo "packages: trying again in $pause s" >&2
      sleep "$pause"
    done
    mv "$new" "$debian"
  fi
  flock -u 9
}

# A library that ends every program that loads it, as one of another glibc may. Names are looked up in it.
trap_lookups() {
  printf '#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }\n' >"$place/trap.c"
  gcc -shared -fPIC -o "$1/usr/lib/$(uname -m)-linux-gnu/libnss_trap.so.2" "$place/trap.c"
  sed -i 's/^hosts:.*/hosts: files trap dns/' "$1/etc/nsswitch.conf"
  echo '127.0.0.1 localhost' >"$1/etc/hosts"
}

# A certificate for localhost that no machine trusts yet.
make_certificate() {
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$1/server.key" -out "$1/server.pem" -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE 2>/dev/null
}

# enter ROOT COMMAND…: runs in the Debian, with processes and a network of its own, as on a machine of its own. It becomes the
# root of a mount namespace: below a mere chroot the kernel makes no user namespaces.
enter() {
  # shellcheck disable=SC2016
  unshare --mount --pid --net --fork --kill-child -- bash -euo pipefail -c '
    ip link set lo up
    mount --bind "$1" "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    cd "$1"
    pivot_root . mnt
    cd /
    umount --lazy /mnt
    shift
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
  ' enter "$@" </dev/null
}

# A release of one commit is the same for everybody who makes it.
check_archives() {
  local archive=("$place"/one/*.tar.gz) package=("$place"/one/*.deb) listed
  (cd "$place/one" && sha256sum --quiet --check SHA256SUMS && [[ $(wc -l <SHA256SUMS) -eq 2 ]])
  diff --recursive "$place/one" "$place/two" || fail "packing the same twice gives different bytes"
  for listed in "$(tar --list --verbose --numeric-owner --file "${archive[0]}")" "$(dpkg-deb --fsys-tarfile "${package[0]}" |
    tar --list --verbose --numeric-owner)"; do
    grep -v ' 0/0 ' <<<"$listed" && fail "these entries do not belong to root"
    grep -vE '^(-rw-r--r--|-rwxr-xr-x|drwxr-xr-x) ' <<<"$listed" && fail "these entries have other rights"
    [[ $(awk '{ print $4 }' <<<"$listed" | sort -u | wc -l) -eq 1 ]] || fail "entries have different dates"
  done
  return 0
}

[[ $# -le 1 ]] || { sed -n '5,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ $(id -u) -eq 0 ]] || skip "only root can install packages"
for tool in mmdebstrap dpkg-deb gcc openssl ip pivot_root unshare; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || skip "$tool is missing: run scripts/setup.sh test"
done
PATH=$PATH:/usr/sbin:/sbin
fetch_debian

place=$(mktemp -d -t sandstorm-packages-XXXXXX)
trap 'rm -rf "$place"' EXIT
# The server's own user must get through to its state.
chmod 755 "$place"

binary=${1:-$TARGET/debug/sandstorm}
if [[ $binary == static ]]; then
  "${CARGO:-cargo}" rustc --quiet --locked --package sandstorm-cli --bin sandstorm -- -C target-feature=+crt-static
  binary=$TARGET/debug/sandstorm
fi
[[ -x $binary ]] || fail "$binary is missing: build it or name another"
strip -o "$place/sandstorm" "$binary"
linked=dynamic
[[ $(readelf --program-headers --wide "$place/sandstorm") == *INTERP* ]] || linked=static
[[ ${1:-} != static || $linked == static ]] || fail "the binary is not linked statically"

scripts/release.sh pack "$place/sandstorm" "$place/one" --quick
scripts/release.sh pack "$place/sandstorm" "$place/two" --quick >/dev/null
check_archives

root=$place/root
mkdir "$root"
tar --extract --numeric-owner --file "$debian" --directory "$root"
mkdir "$root/given"
cp "$place"/one/* tests/packages/inside.sh "$root/given/"
make_certificate "$root/given"
trap_lookups "$root"
enter "$root" /bin/bash /given/inside.sh "$linked"

# What systemd says of the unit, whose program is not installed on this machine.
if command -v systemd-analyze >/dev/null; then
  sed "s|^ExecStart=/usr/bin/|ExecStart=$place/|" packaging/systemd/sandstorm.service >"$place/sandstorm.service"
  complaints=$(systemd-analyze verify --man=no "$place/sandstorm.service" 2>&1) || fail "the unit: $complaints"
  [[ -z $complaints ]] || fail "the unit: $complaints"
else
  echo "packages: not checked: the unit, as there is no systemd-analyze"
fi
echo "packages: the archive and the package ($linked) install, work and leave nothing behind"
