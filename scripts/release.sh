#!/bin/sh
# A release archive: dist/agentfly-VERSION-linux-MACHINE.tar.gz and its SHA-256. It runs on a machine of the same kind without
# building; scripts/launcher.sh fetches libtorch there at the first use. Nothing is uploaded: docs/release.md.
#
# usage: release.sh [FOLDER]      the default is dist
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
dist=${1:-dist}
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
native=$(scripts/build_native.sh)
torch=$(python3 scripts/fetch.py pinned-libtorch)
# shellcheck source=/dev/null
. "$native/env.sh"
test "$AGENTFLY_LIBTORCH" = "$torch" || {
  echo "release: the C++ library is linked with $AGENTFLY_LIBTORCH; unset LIBTORCH, and use a python3 without torch, so that the pinned one is taken" >&2
  exit 1
}
version=$(sed -n 's/^const Version = "\(.*\)"$/\1/p' agentfly.go)
name=agentfly-$version-linux-$(uname -m)
new=$(mktemp -d "$dist/$name.XXXXXX")
trap 'rm -rf "$new"' EXIT
out=$new/$name
mkdir -p "$out/bin" "$out/libexec" "$out/lib" "$out/share"
go build -tags torch -trimpath -ldflags '-s -w' -o "$out/libexec/agentfly" ./cmd/agentfly
cp "$native"/lib/libagentfly.so "$native"/lib/libcgotorch.so "$out/lib/"
cp scripts/launcher.sh "$out/bin/agentfly"
cp scripts/fetch.py "$out/share/"
git ls-files -z LICENSE README.md docs examples | tar --null --files-from - -cf - | tar -xf - -C "$out"
chmod -R u+rwX,go=rX "$out"
chmod 755 "$out/bin/agentfly" "$out/libexec/agentfly"
# The same files give the same archive, whenever and by whom it is made.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -C "$new" -cf - "$name" | gzip -n -9 >"$new/$name.tar.gz"
mv "$new/$name.tar.gz" "$dist/"
(cd "$dist" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$dist/$name.tar.gz: $(du -sh "$dist/$name.tar.gz" | cut -f1)"
