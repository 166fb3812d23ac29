#!/bin/bash
# The release archive in clean roots of Debian 12 and Ubuntu 24.04 without compilers, Go or libtorch: the first use fetches libtorch, a
# job trains, a run is replayed. It needs root, debootstrap and a network; 500 MB are fetched for each root.
#
# usage: test_release.sh [SUITE MIRROR]...      the default is bookworm and noble from their own archives
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
((EUID == 0)) || { echo "test_release: debootstrap needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "test_release: debootstrap is missing; install it: apt-get install debootstrap" >&2; exit 1; }
(($# > 0)) || set -- bookworm http://deb.debian.org/debian noble http://archive.ubuntu.com/ubuntu
work=$(mktemp -d)
mounted=()
clean() {
  for m in "${mounted[@]}"; do umount "$m" || return; done # a root with a mount in it is not removed
  rm -rf "$work"
}
trap clean EXIT
scripts/release.sh "$work/dist"
while (($# > 0)); do
  suite=$1 mirror=$2 root=$work/$1
  shift 2
  options=() components=main
  if [[ $mirror == *ubuntu* ]]; then
    components="main universe"
    test -e /usr/share/keyrings/ubuntu-archive-keyring.gpg || { echo "test_release: no keyring of Ubuntu here: $suite is taken unverified, for this test alone" >&2; options=(--no-check-gpg); }
    # gutsy is the script of all later Ubuntus, for a debootstrap that is older than the suite
    debootstrap "${options[@]}" --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" gutsy >"$work/log" || { tail "$work/log" >&2; exit 1; }
  else
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" >"$work/log" || { tail "$work/log" >&2; exit 1; }
  fi
  echo "deb $mirror $suite $components" >"$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  test ! -e /etc/pip.conf || cp /etc/pip.conf "$root/etc/"
  mount -t proc proc "$root/proc"
  mounted+=("$root/proc")
  cp "$work"/dist/*.tar.gz* "$root/opt/"
  # shellcheck disable=SC2016 # the clean root expands it
  chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root DEBIAN_FRONTEND=noninteractive sh -eu -c '
    apt-get update -qq && apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends python3 python3-pip >/dev/null
    cd /opt && sha256sum -c agentfly-*.sha256 && tar -xzf agentfly-*.tar.gz && rm agentfly-*.tar.gz* && mv agentfly-* agentfly
    . /etc/os-release; echo "$PRETTY_NAME"
    ln -s /opt/agentfly/bin/agentfly /usr/local/bin/agentfly
    mkdir /tmp/w && cd /tmp/w
    agentfly --version
    agentfly doctor | tee doctor
    if grep -E "make (setup|build)" doctor; then echo "doctor names what an archive has not" >&2; exit 1; fi
    agentfly train /opt/agentfly/examples/tiny.yaml --set trainer.steps=3 --output run
    agentfly replay run
    agentfly init first --yes
    agentfly tools call first/tools.py calculator "{\"expression\": \"47 + 85\"}"'
done
echo "test_release: the archive trains in each root"
