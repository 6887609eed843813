#!/usr/bin/env bash
# The built binary on Debian's kernels, in an emulator: does it start, and do walls and limits hold?
#
#   scripts/kernels.sh fetch short|each|all    gets the kernels that are not in the cache yet
#   scripts/kernels.sh test short [SERIES…]    two kernels, a minute or two; what `make test` calls
#   scripts/kernels.sh test each [SERIES…]     every series with both kinds of control groups, and the attacks
#   scripts/kernels.sh test all [SERIES…]      the same with every caller and doctor's matrix; hours
#
# A series is a kernel's first two numbers. The kernels come from Debian's own packages, through the mirror that this machine
# uses, and lie in ${XDG_CACHE_HOME:-~/.cache}/sandstorm/kernels. Nothing is installed and no list of this machine changes.
# Exit codes: 0 fine, 1 something failed, 2 bad usage.
set -euo pipefail
cd "$(dirname "$0")/.."

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/sandstorm/kernels
BINARY=${CARGO_TARGET_DIR:-target}/debug/sandstorm

# Series, release of Debian, and which of its archives. The first two are the kernels of Debian 12 and 13. Debian offers no
# 5.15, and of 6.19, 7.0 and 7.1 kernels without their modules, so nothing can be booted there.
SHORT=(
  "6.1 bookworm-security security"
  "6.12 bookworm-security security"
)
ALL=(
  "${SHORT[@]}"
  "5.10 bullseye debian"
  "6.16 trixie-backports debian"
  "6.17 trixie-backports debian"
  "6.18 trixie-backports debian"
  "7.2 trixie-backports debian"
  "7.3 experimental debian"
)

usage() {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

# Where nothing may be skipped, a machine that cannot do this has failed.
skip() {
  if [[ -n ${SANDSTORM_REQUIRE_ALL:-} ]]; then
    echo "kernels: nothing may be skipped here, but: $1" >&2
    exit 1
  fi
  echo "kernels: skipped: $1"
  exit 0
}

# Runs something that needs the network, again after a pause when it fails.
retry() {
  local pause
  for pause in 5 20; do
    "$@" && return
    echo "kernels: trying again in $pause s: $*" >&2
    sleep "$pause"
  done
  "$@"
}

# The address of an archive as this machine's apt knows it.
archive() {
  local release
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [[ $1 == security ]] && release+=-security
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' "Codename: $release" | head -n 1
}

# apt with sources and lists of its own, in a folder.
private_apt() {
  local place=$1 tool=$2
  shift 2
  "$tool" -o "Dir::Etc::SourceParts=$place/parts" -o Dir::Etc::SourceList=/dev/null -o "Dir::State::Lists=$place/lists" \
    -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@"
}

# fetch_one SERIES RELEASE ARCHIVE: the newest kernel for virtual machines, which is small and has all that is tried.
fetch_one() {
  local series=$1 release=$2 mirror place image version package new wanted
  # What was fetched for checks that needed other modules is fetched again.
  wanted=$(cksum <tests/kernels/modules.py)
  [[ -e $CACHE/$series/vmlinuz && $(cat "$CACHE/$series/wanted" 2>/dev/null) == "$wanted" ]] && return
  mirror=$(archive "$3")
  [[ -n $mirror ]] || skip "this machine's apt knows no mirror of Debian to get a kernel from"
  echo "kernels: fetching Linux $series from $release" >&2
  place=$(mktemp -d)
  mkdir -p "$place/parts" "$place/lists/partial" "$place/packages" "$place/files"
  echo "deb $mirror $release main" >"$place/parts/kernels.list"
  retry private_apt "$place" apt-get update -qq
  image=$(private_apt "$place" apt-cache search --names-only "^linux-image-${series/./\\.}\.[.0-9a-z+-]*-cloud-amd64\$" |
    cut -d' ' -f1 | sort -V | tail -n 1)
  # A series without small steps is called by its two numbers.
  [[ -n $image ]] || image=linux-image-$series-cloud-amd64
  version=${image#linux-image-}
  # Since Linux 7 the kernel and its modules are packages of their own.
  for package in "linux-image-$version" "linux-binary-$version" "linux-modules-$version"; do
    # A name that others only mention has no record.
    if [[ -n $(private_apt "$place" apt-cache madison "$package") ]]; then
      (cd "$place/packages" && retry private_apt "$place" apt-get download -qq "$package")
    fi
  done
  for package in "$place"/packages/*.deb; do
    dpkg-deb -x "$package" "$place/files"
  done
  new=$CACHE/$series.new
  rm -rf "$new"
  mkdir -p "$new"
  find "$place/files" -name 'vmlinuz*' -type f -exec cp {} "$new/vmlinuz" \;
  [[ -s $new/vmlinuz ]] || { echo "kernels: no kernel is in the packages of $version" >&2 && return 1; }
  /usr/bin/python3 tests/kernels/modules.py "$(find "$place/files" -type d -path '*/lib/modules' | head -n 1)" "$new/modules"
  # Without a module for its disk no kernel gets further than its first program.
  [[ -s $new/modules/order ]] || { echo "kernels: no module is in the packages of $version" >&2 && return 1; }
  printf '%s\n' "$wanted" >"$new/wanted"
  # Appears at once and whole.
  rm -rf "${CACHE:?}/$series"
  mv "$new" "$CACHE/$series"
  rm -rf "$place"
}

fetch() {
  local entries=("${SHORT[@]}") entry
  [[ $1 != short ]] && entries=("${ALL[@]}")
  [[ $(uname -m) == x86_64 ]] || skip "the kernels of the tests are for x86_64"
  mkdir -p "$CACHE"
  # Two that want the same wait for each other.
  exec 9>"$CACHE/lock"
  flock 9
  for entry in "${entries[@]}"; do
    # shellcheck disable=SC2086
    fetch_one $entry
  done
  flock -u 9
}

check() {
  local tool
  [[ $(uname -m) == x86_64 ]] || skip "the kernels of the tests are for x86_64"
  for tool in qemu-system-x86_64 cpio mke2fs busybox strip ip setpriv newuidmap; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || skip "$tool is missing: run scripts/setup.sh test"
  done
  [[ -x $BINARY ]] || { echo "kernels: $BINARY is missing: build it first" >&2 && exit 1; }
  local extent=$1
  shift
  PATH=$PATH:/usr/sbin:/sbin /usr/bin/python3 tests/kernels/run.py "$extent" "$CACHE" "$BINARY" "$@"
}

[[ $# -ge 2 && ($2 == short || $2 == each || $2 == all) ]] || usage
case $1 in
  fetch) fetch "$2" ;;
  test)
    fetch "$2"
    shift
    check "$@"
    ;;
  *) usage ;;
esac
