#!/bin/sh
# Everything that scripts/gpu_check.sh needs on a machine without Go and without a network: the sources, gotorch's C++
# side, the program and the test binaries, and the packaged model.
#
# usage: gpu_bundle.sh [DIR]      the default is gpu-bundle in the cache folder; MODEL=0 leaves the model (98 MB) out
#
# The binaries find the C++ library through LD_LIBRARY_PATH: gpu_check.sh compiles it there, against the libtorch that is
# there, and sets it.
set -eu
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly
dir=${1:-$cache/gpu-bundle}
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
native=$(scripts/build_native.sh)
# shellcheck source=/dev/null
. "$native/env.sh"
rm -rf "$dir.new" && mkdir -p "$dir.new/src" "$dir.new/bin" "$dir.new/gotorch"
git ls-files -z | tar --null --files-from - -cf - | tar -xf - -C "$dir.new/src"
cp -r "$(go list -m -f '{{.Dir}}' github.com/wangkuiyi/gotorch)/cgotorch" "$dir.new/gotorch/" && chmod -R u+w "$dir.new/gotorch"
commit=$(git rev-parse --short=12 HEAD)
git diff --quiet HEAD || commit="$commit, with changes that are not committed"
echo "$commit" >"$dir.new/commit"
export CGO_LDFLAGS="-L$native/lib -L$AGENTFLY_LIBTORCH/lib -lagentfly"
go build -tags torch -ldflags '-s -w' -o "$dir.new/bin/agentfly" ./cmd/agentfly
for package in cgo policy trainer; do
  go test -c -tags torch -ldflags '-s -w' -o "$dir.new/bin/$package.test" "./$package"
done
if test "${MODEL:-1}" != 0; then
  model=$(python3 scripts/fetch.py model)
  mkdir -p "$dir.new/model" && cp "$model" "$dir.new/model/"
fi
rm -rf "$dir" && mv "$dir.new" "$dir"
echo "$dir"
