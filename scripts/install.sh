#!/bin/sh
# Copy the binary and the libraries it loads into one folder that can be moved to another machine of the same kind.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
native=$(scripts/build_native.sh)
# shellcheck source=/dev/null
. "$native/env.sh"
out=${DEST:-dist/agentfly}
rm -rf "$out" && mkdir -p "$out/bin" "$out/lib" "$out/libtorch/torch/lib"
cp bin/agentfly "$out/bin/"
cp "$native"/lib/libagentfly.so "$native"/lib/libcgotorch.so "$out/lib/"
cp "$AGENTFLY_LIBTORCH"/lib/*.so* "$out/libtorch/torch/lib/"
nvidia=$(dirname "$AGENTFLY_LIBTORCH")/nvidia # beside torch: libtorch finds it by its own RPATH
test ! -d "$nvidia" || cp -r "$nvidia" "$out/libtorch/"
cp -r LICENSE README.md examples "$out/"
echo "$out: $(du -sh "$out" | cut -f1); run $out/bin/agentfly version"
