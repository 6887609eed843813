#!/bin/sh
# Copies what is in this archive below a prefix, or takes it away again. Stands in the archive beside `bin`.
#
#   ./install.sh [--prefix DIR]            installs below DIR; /usr/local if it is not given
#   ./install.sh --remove [--prefix DIR]   deletes the same files
#
# DESTDIR goes before every path that is written, for those who build packages. State and configuration are not touched.
set -eu
cd "$(dirname "$0")"

usage() {
  sed -n '4,7s/^# \{0,1\}//p' install.sh >&2
  exit 2
}

prefix=/usr/local remove=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix)
      [ $# -ge 2 ] || usage
      prefix=$2
      shift
      ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --remove) remove=yes ;;
    *) usage ;;
  esac
  shift
done
case $prefix in
  *[!A-Za-z0-9/._+-]*)
    echo "install.sh: $prefix: a unit of systemd could not name this folder; use letters, digits and ._+-" >&2
    exit 2
    ;;
  /*) prefix=${prefix%/} ;;
  *)
    echo "install.sh: --prefix $prefix: give a whole path, which begins with /" >&2
    exit 2
    ;;
esac

target=${DESTDIR:-}$prefix
# No name of the archive has a space in it.
for file in $(find bin lib share -type f | LC_ALL=C sort); do
  if [ -n "$remove" ]; then
    rm -f "$target/$file"
    continue
  fi
  mode=644
  [ "${file%%/*}" = bin ] && mode=755
  mkdir -p "$target/${file%/*}"
  # A program that runs keeps its file: the new one takes the name.
  case $file in
    *.service) sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" "$file" >"$target/$file.new" ;;
    *) cp "$file" "$target/$file.new" ;;
  esac
  chmod "$mode" "$target/$file.new"
  mv -f "$target/$file.new" "$target/$file"
done

if [ -n "$remove" ]; then
  rmdir "$target/share/sandstorm" 2>/dev/null || true
  echo "removed Sandstorm from $target"
  exit
fi
echo "installed $target/bin/sandstorm"
cat <<END

  $prefix/bin/sandstorm doctor     # what this machine lacks, and how to get it

For a server that starts with the machine, as root:

  systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload
  $prefix/bin/sandstorm keys create --name first
  systemctl enable --now sandstorm
END
