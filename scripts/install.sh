#!/bin/sh
# Copy the binary and the libraries it loads into one folder that can be moved to another machine of the same kind.
#
# DEST=FOLDER   dist/agentfly   new or empty, or that of an earlier install, of which what is written here is replaced
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
out=${DEST:-dist/agentfly}
if test -n "$(ls -A "$out" 2>/dev/null)" && ! { test -f "$out/bin/agentfly" && test -f "$out/lib/libagentfly.so"; }; then
  echo "install: $out is not empty and holds no earlier install (bin/agentfly and lib/libagentfly.so); set DEST to another folder" >&2
  exit 1
fi
native=$(scripts/build_native.sh)
# shellcheck source=/dev/null
. "$native/env.sh"
for name in bin/agentfly lib/libagentfly.so lib/libcgotorch.so libtorch LICENSE README.md examples; do
  rm -rf "${out:?}/$name"
done
mkdir -p "$out/bin" "$out/lib" "$out/libtorch/torch/lib"
cp bin/agentfly "$out/bin/"
cp "$native"/lib/libagentfly.so "$native"/lib/libcgotorch.so "$out/lib/"
cp "$AGENTFLY_LIBTORCH"/lib/*.so* "$out/libtorch/torch/lib/"
nvidia=$(dirname "$AGENTFLY_LIBTORCH")/nvidia # beside torch: libtorch finds it by its own RPATH
test ! -d "$nvidia" || cp -r "$nvidia" "$out/libtorch/"
cp -r LICENSE README.md examples "$out/"
echo "$out: $(du -sh "$out" | cut -f1); run $out/bin/agentfly version"
