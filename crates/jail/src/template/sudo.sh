#!/bin/sh
# A program of a sandbox never gets more rights than it has: this runs what it is asked to with those.
# It reads the options of sudo, keeps the variables and goes to the folder that they say, and drops the rest.
shell=
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --chdir=*) cd -- "${1#*=}" || exit 1; shift ;;
    -D | --chdir) cd -- "${2-}" || exit 1; shift 2 ;;
    -V | --version) echo "sudo of a sandbox: runs programs with the rights of the caller"; exit 0 ;;
    -l | --list | -v | --validate | -k | -K | --reset-timestamp | --remove-timestamp)
      [ $# -gt 1 ] || exit 0
      shift ;;
    -i | -s | --login | --shell) shell=yes; shift ;;
    -[ughpCrtTUR] | --user | --group | --host | --prompt | --close-from | --role | --type | --command-timeout | \
      --other-user | --chroot)
      [ $# -gt 1 ] || { echo "sudo: $1 needs a value" >&2; exit 1; }
      shift 2 ;;
    -[ughpCrtTUR]?* | --*=*) shift ;;
    -*[ughpCrtTUR])
      [ $# -gt 1 ] || { echo "sudo: $1 needs a value" >&2; exit 1; }
      shift 2 ;;
    -*[is]*) shell=yes; shift ;;
    -*) shift ;;
    [A-Za-z_]*=*) export "$1"; shift ;;
    *) break ;;
  esac
done
if [ -n "$shell" ]; then
  [ $# -gt 0 ] || exec "${SHELL:-/bin/bash}"
  exec "${SHELL:-/bin/bash}" -c "$*"
fi
[ $# -gt 0 ] || { echo "usage: sudo [options] command" >&2; exit 1; }
exec "$@"
