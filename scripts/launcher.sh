#!/bin/sh
# agentfly of a release archive: fetches the libtorch that the program was linked with at the first use, then runs the program.
#
# libtorch is pinned by SHA-256, and lies in the cache folder ($XDG_CACHE_HOME or ~/.cache)/agentfly; the archive's folder gets a link
# to it. So the first call needs a network, python3 with pip, and a folder that it may write to. Later calls need none of these.
set -eu
unset CDPATH # it would send cd elsewhere
self=$0
while test -L "$self"; do # a link on PATH leads here
  to=$(readlink "$self")
  case $to in /*) self=$to ;; *) self=$(dirname "$self")/$to ;; esac
done
here=$(cd "$(dirname "$self")/.." && pwd)
if ! test -f "$here/libtorch/torch/lib/libtorch_cpu.so"; then
  if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "agentfly: the first use fetches libtorch with python3 and pip; install them: apt-get install python3 python3-pip ca-certificates" >&2
    exit 1
  fi
  test -w "$here" || {
    echo "agentfly: the first use links libtorch into $here, which this user may not write to; run agentfly once as its owner, with an XDG_CACHE_HOME that all its users may read" >&2
    exit 1
  }
  torch=$(python3 "$here/share/fetch.py" pinned-libtorch)
  rm -rf "$here/libtorch.$$"
  ln -s "$(dirname "$torch")" "$here/libtorch.$$"
  mv -fT "$here/libtorch.$$" "$here/libtorch" # at once: two first uses at the same time link the same
fi
exec "$here/libexec/agentfly" "$@"
