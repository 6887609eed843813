#!/usr/bin/env bash
# Makes what is released: an archive with a statically linked binary, a Debian package, and SHA256SUMS.
#
#   scripts/release.sh build                      builds the release binary of this commit and packs it into dist/
#   scripts/release.sh pack BINARY DIR [--quick]  packs this binary into DIR; --quick compresses little, for tests
#
# The same binary and the same commit give the same bytes: entries are sorted, belong to root and have the date of the commit
# (or SOURCE_DATE_EPOCH).
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
umask 022

usage() {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

fail() {
  echo "release: $1" >&2
  exit 1
}

# Only the last crate is built for the archive: the flag for all of them would refuse procedural macros.
build() {
  local binary=${CARGO_TARGET_DIR:-target}/release/sandstorm
  [[ -z $(git status --porcelain --untracked-files=no) ]] || fail "there are changes that are not committed"
  "${CARGO:-cargo}" rustc --release --locked --package sandstorm-cli --bin sandstorm -- -C target-feature=+crt-static
  # A library that is not there at the start of the program is missing on the machine of some user.
  [[ $(readelf --program-headers --dynamic --wide "$binary") != *@(INTERP|NEEDED)* ]] ||
    fail "$binary is not linked statically"
  pack "$binary" dist
}

# install_file MODE FROM TO
install_file() {
  install -D --mode "$1" "$2" "$3"
}

# Everything that the binary itself can make.
generate() {
  local binary=$1 out=$2 shell
  mkdir -p "$out"
  for shell in bash zsh fish; do
    "$binary" completions "$shell" >"$out/$shell"
  done
  "$binary" manual "$out/man"
  # Each setting of `config init` as a comment, below a head that says so: a line with a default would keep that default for
  # good, and asks for its log level where a command has a quieter one by itself.
  "$binary" config init "$out/full.yaml" >/dev/null
  { cat packaging/sandstorm.yaml && sed -E '1,/^$/d; s/^( *)([^ #])/\1#\2/' "$out/full.yaml"; } >"$out/sandstorm.yaml"
}

# Same dates and rights for everything below a folder, whatever made it.
normalise() {
  chmod -R u=rwX,go=rX "$1"
  find "$1" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
}

archive() {
  local binary=$1 made=$2 root=$3 out=$4
  install_file 755 "$binary" "$root/bin/sandstorm"
  install_file 755 packaging/install.sh "$root/install.sh"
  install_file 644 LICENSE "$root/LICENSE"
  install_file 644 README.md "$root/README.md"
  install_file 644 CHANGELOG.md "$root/CHANGELOG.md"
  install_file 644 "$made/bash" "$root/share/bash-completion/completions/sandstorm"
  install_file 644 "$made/zsh" "$root/share/zsh/site-functions/_sandstorm"
  install_file 644 "$made/fish" "$root/share/fish/vendor_completions.d/sandstorm.fish"
  install_file 644 "$made/sandstorm.yaml" "$root/share/sandstorm/sandstorm.yaml"
  install_file 644 packaging/systemd/sandstorm.service "$root/lib/systemd/system/sandstorm.service"
  install_file 644 packaging/systemd/sandstorm.sysusers "$root/lib/sysusers.d/sandstorm.conf"
  install_file 644 packaging/systemd/sandstorm.tmpfiles "$root/lib/tmpfiles.d/sandstorm.conf"
  mkdir -p "$root/share/man/man1"
  cp "$made"/man/*.1 "$root/share/man/man1/"
  normalise "$root"
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --format=gnu --mtime="@$SOURCE_DATE_EPOCH" \
    --directory "$(dirname "$root")" "$(basename "$root")" | gzip --no-name "$level" >"$out"
}

debian() {
  local binary=$1 made=$2 root=$3 version=$4 architecture=$5 out=$6 doc=$3/usr/share/doc/sandstorm size
  install_file 755 "$binary" "$root/usr/bin/sandstorm"
  install_file 644 "$made/sandstorm.yaml" "$root/etc/sandstorm/sandstorm.yaml"
  install_file 644 "$made/bash" "$root/usr/share/bash-completion/completions/sandstorm"
  install_file 644 "$made/zsh" "$root/usr/share/zsh/vendor-completions/_sandstorm"
  install_file 644 "$made/fish" "$root/usr/share/fish/vendor_completions.d/sandstorm.fish"
  install_file 644 packaging/systemd/sandstorm.service "$root/usr/lib/systemd/system/sandstorm.service"
  install_file 644 packaging/systemd/sandstorm.sysusers "$root/usr/lib/sysusers.d/sandstorm.conf"
  install_file 644 packaging/systemd/sandstorm.tmpfiles "$root/usr/lib/tmpfiles.d/sandstorm.conf"
  install_file 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/sandstorm"
  mkdir -p "$root/usr/share/man/man1"
  cp "$made"/man/*.1 "$root/usr/share/man/man1/"
  gzip --no-name -9 "$root"/usr/share/man/man1/*.1
  install_file 644 README.md "$doc/README.md"
  install_file 644 CHANGELOG.md "$doc/CHANGELOG.md"
  # Debian wants one in its own form, too.
  printf '%s (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- %s  %s\n' sandstorm "$version" \
    "$(sed -n 's/^Maintainer: //p' packaging/debian/control)" "$(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")" \
    >"$doc/changelog"
  gzip --no-name -9 "$doc/CHANGELOG.md" "$doc/changelog"
  # Debian's form of the licence: each line indented, an empty one as a dot.
  { cat packaging/debian/copyright && tail -n +5 LICENSE | sed 's/^$/./; s/^/ /'; } >"$doc/copyright"

  # Kibibytes, each file and folder rounded up.
  size=$(find "$root" -printf '%y %s\n' | awk '{ n += $1 == "d" ? 1 : int(($2 + 1023) / 1024) } END { print n }')
  mkdir "$root/DEBIAN"
  (cd "$root" && find etc usr -type f | sort | xargs md5sum) >"$root/DEBIAN/md5sums"
  echo /etc/sandstorm/sandstorm.yaml >"$root/DEBIAN/conffiles"
  sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" packaging/debian/control >"$root/DEBIAN/control"
  cp packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
  normalise "$root"
  # With more threads xz would cut the data in other places.
  DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$out" >/dev/null
}

pack() {
  local binary=$1 out=$2 version architecture machine name package
  binary=$(realpath "$binary")
  version=$("$binary" --version)
  version=${version#sandstorm }
  machine=$(uname -m)
  case $machine in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) fail "packages for $machine are not made" ;;
  esac
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
  export SOURCE_DATE_EPOCH
  name=sandstorm-$version-linux-$machine
  # What comes before 1.0.0 sorts before it.
  package=sandstorm_${version/-/\~}_$architecture.deb

  mkdir -p "$out"
  out=$(realpath "$out")
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' EXIT
  generate "$binary" "$stage/made"
  archive "$binary" "$stage/made" "$stage/$name" "$out/$name.tar.gz"
  debian "$binary" "$stage/made" "$stage/debian" "${version/-/\~}" "$architecture" "$out/$package"
  (cd "$out" && sha256sum "$name.tar.gz" "$package" >SHA256SUMS)
  echo "release: $name.tar.gz and $package are in $out"
}

level=-9 compression=(-Zxz)
case $* in
  build) build ;;
  "pack "*)
    [[ $# -eq 3 || ($# -eq 4 && $4 == --quick) ]] || usage
    [[ $# -eq 3 ]] || level=-1 compression=(-Zgzip -z1)
    pack "$2" "$3"
    ;;
  *) usage ;;
esac
