#!/usr/bin/env bash
# Installs what this machine still lacks, and says nothing when nothing is missing.
#
#   scripts/setup.sh run     what `sandstorm run` needs for Python and JavaScript
#   scripts/setup.sh test    run, plus every language and tool that the tests use
#   scripts/setup.sh bench   run, plus what the benches compare against
#   scripts/setup.sh k8s     test, plus what a node of Kubernetes needs
#
# Exit codes: 0 ready, 1 an install failed, 2 bad usage, 3 something is missing and only root can install it.
set -euo pipefail

CARGO_DENY_VERSION=0.20.2

# Each entry is package=path[|path...]: when any of the paths exists the package counts as present, so that a
# toolchain which did not come through apt is left alone and the usual check costs no process at all. An entry
# without a path is looked up with dpkg-query.
RUN_PACKAGES=(
  python3=/usr/bin/python3
  python3-venv
  "nodejs=/usr/bin/node|/usr/local/bin/node"
)

LANGUAGE_PACKAGES=(
  bash=/usr/bin/bash
  gcc=/usr/bin/gcc
  g++=/usr/bin/g++
  libc6-dev
  "golang-go=/usr/bin/go|/usr/local/go/bin/go"
  rustc=/usr/bin/rustc
  cargo=/usr/bin/cargo
  maven=/usr/bin/mvn
  "npm=/usr/bin/npm|/usr/local/bin/npm"
  "default-jdk-headless=/usr/bin/javac"
  mono-mcs=/usr/bin/mcs
  mono-runtime=/usr/bin/mono
  libmono-system-runtime-serialization4.0-cil
  libmono-system-net-http4.0-cil
  libmono-system-xml-linq4.0-cil
  node-typescript=/usr/bin/tsc
  ruby=/usr/bin/ruby
  php-cli=/usr/bin/php
  perl=/usr/bin/perl
  lua5.4=/usr/bin/lua5.4
  r-base-core=/usr/bin/Rscript
  sqlite3=/usr/bin/sqlite3
)

TEST_PACKAGES=(
  bubblewrap=/usr/bin/bwrap
  uidmap=/usr/bin/newuidmap
  nftables=/usr/sbin/nft
  iproute2=/usr/sbin/ip
  openssl=/usr/bin/openssl
  strace=/usr/bin/strace
  tmux=/usr/bin/tmux
  procps=/usr/bin/pgrep
  curl=/usr/bin/curl
  ca-certificates=/etc/ssl/certs/ca-certificates.crt
  jq=/usr/bin/jq
  make=/usr/bin/make
  postgresql=/usr/bin/pg_ctlcluster
  etcd-server=/usr/bin/etcd
  qemu-system-x86=/usr/bin/qemu-system-x86_64
  busybox-static
  cpio=/usr/bin/cpio
  e2fsprogs=/usr/sbin/mke2fs
  mmdebstrap=/usr/bin/mmdebstrap
  python3-numpy
  python3-pandas
  python3-matplotlib
)

NODE_PACKAGES=(
  containerd=/usr/bin/containerd
  runc=/usr/sbin/runc
  containernetworking-plugins=/usr/lib/cni/bridge
)

BENCH_PACKAGES=(
  bubblewrap=/usr/bin/bwrap
  runc=/usr/sbin/runc
  docker.io=/usr/sbin/dockerd
  podman=/usr/bin/podman
  python3-numpy
  gcc=/usr/bin/gcc
  libc6-dev
  make=/usr/bin/make
)

usage() {
  echo "usage: scripts/setup.sh run|test|bench|k8s" >&2
  exit 2
}

# Prints the packages among the given entries that are not there.
missing_packages() {
  local entry package paths path found unchecked=()
  for entry in "$@"; do
    package=${entry%%=*}
    if [[ $entry != *=* ]]; then
      unchecked+=("$package")
      continue
    fi
    found=
    IFS='|' read -ra paths <<<"${entry#*=}"
    for path in "${paths[@]}"; do
      [[ -e $path ]] && found=1 && break
    done
    [[ -n $found ]] || echo "$package"
  done
  [[ ${#unchecked[@]} -eq 0 ]] && return
  local installed
  # dpkg-query fails when it knows nothing of one of the names; what it did print still counts.
  # shellcheck disable=SC2016
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${unchecked[@]}" 2>/dev/null || true)
  for package in "${unchecked[@]}"; do
    grep -qx "ii  $package" <<<"$installed" || echo "$package"
  done
}

# Debian 12 keeps rustc and cargo at 1.63 and ships current ones as rustc-web and cargo-web; elsewhere they are recent.
prefer_current_rustc() {
  local package
  for package in "$@"; do
    if [[ $package == rustc || $package == cargo ]] && archive_has "$package-web"; then
      package=$package-web
    fi
    echo "$package"
  done
}

# A name that only other packages mention, as all names are when no index was fetched yet, is not in the archive.
archive_has() {
  apt-cache show --no-all-versions "$1" >/dev/null 2>&1
}

# A fresh machine may still be at its own updates, and a mirror may be away for a moment: both are waited for.
APT_PATIENCE=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=5)

apt_update() {
  apt-get "${APT_PATIENCE[@]}" update -q "$@"
}

apt_install() {
  # RUNLEVEL=1 keeps packages from starting their daemons: the tests start what they need themselves.
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
    apt-get "${APT_PATIENCE[@]}" install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 "$@"
}

# Runs something that needs the network, again after a pause when it fails.
retry() {
  local pause
  for pause in 10 30; do
    "$@" && return
    echo "setup: trying again in $pause s: $*" >&2
    sleep "$pause"
  done
  "$@"
}

install_packages() {
  local wanted=("$@") package
  if ! command -v apt-get >/dev/null; then
    echo "setup: this script installs with apt; install these by other means: ${wanted[*]}" >&2
    exit 1
  fi
  if [[ $(id -u) -ne 0 ]]; then
    mapfile -t wanted < <(prefer_current_rustc "${wanted[@]}")
    echo "setup: missing packages; run:" >&2
    echo "  sudo apt-get install --no-install-recommends ${wanted[*]}" >&2
    exit 3
  fi
  for package in "${wanted[@]}"; do
    if ! archive_has "$package"; then
      retry apt_update
      break
    fi
  done
  mapfile -t wanted < <(prefer_current_rustc "${wanted[@]}")
  echo "setup: installing ${wanted[*]}"
  # An index from another day names files that the mirror has since replaced: refresh it once and try again.
  apt_install "${wanted[@]}" || { retry apt_update && retry apt_install "${wanted[@]}"; }
}

# gVisor's runsc. Debian 12 has one that is too old for its kernels, and a good one in its backports, which most machines
# do not list: it is asked for at the mirror that this machine already uses, and only for this. A machine that cannot have
# it is no reason to stop, because the bench says of each peer that is missing what it lacks.
install_runsc() {
  [[ -x /usr/bin/runsc ]] && return
  if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "setup: runsc is missing; the bench goes on without it" >&2
    return
  fi
  local release mirror place options
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' "Codename: $release" |
    head -n 1)
  if [[ -z $mirror ]]; then
    echo "setup: apt knows no mirror of Debian here; the bench goes on without runsc" >&2
    return
  fi
  place=$(mktemp -d)
  # apt fetches as another user.
  chmod 755 "$place"
  cp -r /etc/apt/sources.list.d "$place/parts"
  echo "deb $mirror $release-backports main" >"$place/parts/backports.list"
  # The machine's own lists stay as they are: neither its sources nor its indices learn of the backports.
  options=(-o "Dir::Etc::SourceParts=$place/parts" -o "Dir::State::Lists=$place/lists")
  mkdir -p "$place/lists/partial"
  echo "setup: installing runsc from $release-backports"
  if ! { apt_update "${options[@]}" &&
    apt_install "${options[@]}" --target-release "$release-backports" runsc; }; then
    echo "setup: runsc could not be installed; the bench goes on without it" >&2
  fi
  rm -rf "$place"
}

install_cargo_deny() {
  command -v cargo-deny >/dev/null && return
  [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo-deny ]] && return
  if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing: install Rust with rustup, then run this again" >&2
    exit 1
  fi
  echo "setup: installing cargo-deny $CARGO_DENY_VERSION (some minutes)"
  retry cargo install cargo-deny --locked --version "$CARGO_DENY_VERSION" --quiet
}

# The program that is PID 1 of every sandbox starts in half the time with musl. Without it the build uses glibc.
add_musl_target() {
  command -v rustup >/dev/null || return 0
  local target
  target=$(uname -m)-unknown-linux-musl
  rustup target list --installed 2>/dev/null | grep -qx "$target" && return
  timeout 120 rustup target add "$target" >/dev/null 2>&1 ||
    echo "setup: rustup could not add $target; sandboxes start a little slower without it" >&2
}

# Tests and benches also run as an ordinary user that has a range of subordinate ids.
make_test_user() {
  local user=sandstorm-test
  [[ $(id -u) -eq 0 ]] || return 0
  id "$user" >/dev/null 2>&1 || useradd --no-create-home --shell /usr/sbin/nologin "$user"
  grep -q "^$user:" /etc/subuid || usermod --add-subuids 300000000-300065535 "$user"
  grep -q "^$user:" /etc/subgid || usermod --add-subgids 300000000-300065535 "$user"
}

[[ $# -eq 1 ]] || usage
case $1 in
  run) entries=("${RUN_PACKAGES[@]}") ;;
  test) entries=("${RUN_PACKAGES[@]}" "${LANGUAGE_PACKAGES[@]}" "${TEST_PACKAGES[@]}") ;;
  bench) entries=("${RUN_PACKAGES[@]}" "${BENCH_PACKAGES[@]}") ;;
  k8s) entries=("${RUN_PACKAGES[@]}" "${LANGUAGE_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${NODE_PACKAGES[@]}") ;;
  *) usage ;;
esac

mapfile -t missing < <(missing_packages "${entries[@]}")
if [[ ${#missing[@]} -gt 0 ]]; then
  install_packages "${missing[@]}"
fi
add_musl_target
if [[ $1 == test || $1 == k8s ]]; then
  install_cargo_deny
fi
if [[ $1 == bench ]]; then
  install_runsc
fi
if [[ $1 != run ]]; then
  make_test_user
fi
