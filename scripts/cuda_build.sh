#!/bin/sh
# Compile the C++ library against the CUDA libtorch of PyPI and load it: what can be shown of a CUDA build without a GPU.
#
# usage: cuda_build.sh [VERSION...]      of torch; the default is 2.11.0 and the one that the project is pinned to. Each takes
#                                        5 GB in the cache folder, and is kept.
#
# The wheels need no driver and no CUDA toolkit: torch brings the libraries, cuda-toolkit the headers that NCCL is compiled
# with (crt, cccl), which are no requirement of torch.
set -eu
unset CDPATH # it would send cd elsewhere
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly
test $# -gt 0 || set -- 2.11.0 "$(python3 -B -c 'import sys; sys.path.insert(0, "scripts"); import fetch; print(fetch.TORCH[1])')"
for version; do
  site=$cache/cuda-$version/site
  if ! test -f "$site/torch/lib/libtorch_cuda.so"; then
    echo "cuda-build: torch $version and its CUDA libraries into $site (2.7 GB to fetch)" >&2
    rm -rf "$site.new"
    python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --target "$site.new" \
      "torch==$version" 'cuda-toolkit[crt,cudart,cccl]'
    test -f "$site.new/torch/lib/libtorch_cuda.so" || { echo "cuda-build: torch $version of this package index has no CUDA" >&2; exit 1; }
    rm -rf "$site" && mv "$site.new" "$site"
  fi
  native=$(LIBTORCH=$site/torch scripts/build_native.sh)
  python3 - "$native/lib/libagentfly.so" "$version" <<'P'
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])  # finds libtorch and the CUDA libraries through its run path, or says which it does not
library.af_torch_version.restype = ctypes.c_char_p
version = library.af_torch_version().decode()
if version.split("+")[0] != sys.argv[2]:
    sys.exit(f"cuda-build: {sys.argv[1]} was compiled against torch {version}, asked for was {sys.argv[2]}")
if b".text.af_head_backward_bf16" not in open(sys.argv[1], "rb").read():
    sys.exit(f"cuda-build: {sys.argv[1]} carries no kernels")
print(f"cuda-build: {sys.argv[1]} loads: torch {version}, {library.af_cuda_devices()} CUDA device(s)")
P
done
