#!/bin/bash
# Containerfile is built with buildah from what is committed, and the image trains the tiny job, replays it and runs as its own user. The base
# images come from their registry; where that cannot be reached (or with BASES=local) they are made here with debootstrap, under the same
# names. It needs root, buildah, a network for packages, and 10 GB of disk for a while.
set -euo pipefail
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
((EUID == 0)) || { echo "test_container: buildah with a chroot, and debootstrap, need root" >&2; exit 1; }
command -v buildah >/dev/null || { echo "test_container: buildah is missing; install it: apt-get install --no-install-recommends buildah" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
b=(buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" --registries-conf "$work/registries.conf")
echo 'unqualified-search-registries = []' >"$work/registries.conf"
mapfile -t bases < <(sed -nE 's/^FROM ([^ ]+).*/\1/p' Containerfile)
images=0
[[ ${BASES-} == local ]] || for base in "${bases[@]}"; do timeout 120 "${b[@]}" pull -q "$base" >/dev/null 2>"$work/log" && images=$((images + 1)); done
if ((images < ${#bases[@]})); then
  command -v debootstrap >/dev/null || { echo "test_container: no registry answers, and debootstrap is missing; install it: apt-get install debootstrap" >&2; exit 1; }
  echo "test_container: the base images are made here: Debian 12, minbase; for the first stage with git and the Go of this machine"
  debootstrap --variant=minbase --include=ca-certificates,git bookworm "$work/debian" "${MIRROR:-http://deb.debian.org/debian}" >"$work/log" || { tail "$work/log" >&2; exit 1; }
  cp /etc/ssl/certs/ca-certificates.crt "$work/debian/etc/ssl/certs/"
  test ! -e /etc/pip.conf || cp /etc/pip.conf "$work/debian/etc/"
  for base in "${bases[@]}"; do
    c=$("${b[@]}" from scratch)
    "${b[@]}" copy -q "$c" "$work/debian" / >/dev/null
    path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    if [[ $base == *golang* ]]; then
      "${b[@]}" copy -q "$c" "$(go env GOROOT)" /usr/local/go >/dev/null
      path=/go/bin:/usr/local/go/bin:$path
      "${b[@]}" config --env GOPATH=/go "$c"
    fi
    "${b[@]}" config --env "PATH=$path" --cmd sh "$c"
    "${b[@]}" commit -q --rm "$c" "$base" >/dev/null
  done
  rm -rf "$work/debian"
fi
git clone -q --no-hardlinks . "$work/source"
"${b[@]}" bud --isolation chroot --network host --pull-never -t agentfly "$work/source" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; exit 1; }
c=$("${b[@]}" from --pull-never agentfly)
in=("${b[@]}" run --isolation chroot "$c" -- sh -euc)
# shellcheck disable=SC2016 # the container expands it
"${in[@]}" 'test "$(id -un)" = agentfly; cd /work
  agentfly --version
  agentfly train /opt/agentfly/examples/tiny.yaml --set trainer.steps=3 --output run
  agentfly replay run
  agentfly init first --yes
  agentfly tools call first/tools.py calculator "{\"expression\": \"47 + 85\"}"
  if command -v g++ go; then echo "a compiler is in the image" >&2; exit 1; fi'
"${b[@]}" inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}} {{.OCIv1.Config.WorkingDir}}' agentfly | grep -qx '\[agentfly\] agentfly /work'
echo "test_container: the image was built, and trains"
