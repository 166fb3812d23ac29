#!/bin/sh
# Everything that scripts/gpu_check.sh needs on a machine without Go and without a network: the C++ library compiled against the
# CUDA libtorch of PyPI, the program and test binaries, the sources to compile it anew, and the packaged model in parts.
#
# usage: gpu_bundle.sh [DIR]      the default is gpu-bundle in the cache folder
#
# TORCH=VERSION  2.11.0  of the machine's torch; none: no library, the machine's g++ compiles it
# LIMIT=MIB      64      that may travel with one command: bundle.tar.gz and a part of the model are checked against it
# PART=MIB       20      of a part of the model. The parts may come one with each stage
# MODEL=0                leaves the model out, and with it two rows of the table
#
# DIR gets gpu_check.sh, bundle.tar.gz and model.part-*, in place of an earlier bundle's; what else lies there stays. The
# binaries find the library through LD_LIBRARY_PATH, which gpu_check.sh sets.
set -eu
unset CDPATH # it would send cd elsewhere
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly
dir=${1:-$cache/gpu-bundle}
case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
cd "$(dirname "$0")/.."
torch=${TORCH:-2.11.0} limit=${LIMIT:-64} part=${PART:-20}
if test "$torch" != none; then
  scripts/cuda_build.sh "$torch" >&2
  LIBTORCH=$cache/cuda-$torch/site/torch
  export LIBTORCH
fi
native=$(scripts/build_native.sh)
# shellcheck source=/dev/null
. "$native/env.sh"
rm -rf "$dir.new" && mkdir -p "$dir.new/in/src" "$dir.new/in/bin" "$dir.new/in/gotorch" "$dir.new/in/lib"
trap 'rm -rf "$dir.new"' EXIT
in=$dir.new/in
# what tests and jobs read beside their own folders, and what the library is compiled from
git ls-files -z cgo policy trainer examples scripts | tar --null --files-from - -cf - | tar -xf - -C "$in/src"
cp -r "$(go list -m -f '{{.Dir}}' github.com/wangkuiyi/gotorch)/cgotorch" "$in/gotorch/" && chmod -R u+w "$in/gotorch"
cp "$(scripts/cuda_kernels.sh)" "$in/kernels.fatbin" # the machine has g++ at most, and no nvcc
commit=$(git rev-parse --short=12 HEAD)
git diff --quiet HEAD || commit="$commit, with changes that are not committed"
echo "$commit" >"$in/commit"
export CGO_LDFLAGS="-L$native/lib -L$AGENTFLY_LIBTORCH/lib -lagentfly"
go build -tags torch -ldflags '-s -w' -o "$in/bin/agentfly" ./cmd/agentfly
for package in cgo policy trainer; do
  go test -c -tags torch -ldflags '-s -w' -o "$in/bin/$package.test" "./$package"
done
if test "$torch" != none; then
  cp "$native/lib/libagentfly.so" "$native/lib/libcgotorch.so" "$in/lib/"
  strip --strip-unneeded "$in"/lib/*.so
  echo "$torch" >"$in/lib/torch-version"
  python3 - "$in/lib/libagentfly.so" >"$in/lib/libgomp-name" <<'P'
import re, sys
names = re.findall(rb"libgomp[-.0-9a-z]*\.so[.0-9]*", open(sys.argv[1], "rb").read())
print(names[0].decode() if names else "")
P
fi
if test "${MODEL:-1}" != 0; then
  model=$(python3 scripts/fetch.py model)
  split -b "${part}m" -d -a 2 "$model" "$dir.new/model.part-"
  echo "$(basename "$model") $(wc -c <"$model") $(find "$dir.new" -name 'model.part-*' | wc -l)" >"$in/model.name"
fi
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$in" -cf - . | gzip -n -9 >"$dir.new/bundle.tar.gz"
unpacked=$(du -sm "$in" | cut -f 1)
rm -rf "$in"
cp scripts/gpu_check.sh "$dir.new/"
mib() { awk "BEGIN { printf \"%.1f\", $1 / 1048576 }"; }
bytes=$(wc -c <"$dir.new/bundle.tar.gz") biggest=0
for file in "$dir.new"/model.part-*; do
  test ! -f "$file" || { size=$(wc -c <"$file"); test "$size" -le "$biggest" || biggest=$size; }
done
if test $((bytes + biggest)) -gt $((limit * 1048576)); then
  echo "gpu-bundle: bundle.tar.gz ($(mib "$bytes") MiB) and a part of the model ($(mib "$biggest") MiB) are more than $limit MiB (LIMIT): make PART smaller, or leave the model out (MODEL=0)" >&2
  exit 1
fi
mkdir -p "$dir"
rm -f "$dir"/model.part-*
mv "$dir.new"/* "$dir/" # no name of these begins with a dot
{
  echo "gpu-bundle: bundle.tar.gz $(mib "$bytes") MiB ($unpacked MiB unpacked): program, three test binaries, sources of cgo, policy, trainer, examples and scripts"
  if test "$torch" = none; then echo "gpu-bundle: left out: the C++ library, which the machine compiles (TORCH=none)"; else echo "gpu-bundle: the C++ library is for torch $torch; with another one the machine's g++ compiles it"; fi
  if test "$biggest" = 0; then
    echo "gpu-bundle: left out: the model (MODEL=0): its two rows are skipped"
  else
    echo "gpu-bundle: the model in $(find "$dir" -name 'model.part-*' | wc -l) parts of at most $(mib "$biggest") MiB: one with each stage is enough, stage 5 wants all"
  fi
  echo "gpu-bundle: left out: docs, python, environments and what no stage runs; weights of 0.5B to 7B are random numbers, made there"
} >&2
echo "$dir"
