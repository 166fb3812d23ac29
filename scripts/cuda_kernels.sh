#!/bin/sh
# Compile the CUDA kernels (cgo/src/cuda/kernels.cu) and print the path of the fat binary: machine code of sm_90 (H100,
# H200), and PTX of compute_80, from which a driver makes the code of other devices. Neither a GPU nor a driver is needed.
#
# usage: cuda_kernels.sh [SOURCE.cu]     NVCC=FILE  the compiler; the default is that on PATH, that of /usr/local/cuda, or
#                                        PyPI's, pinned by scripts/fetch.py (94 MB)
#        cuda_kernels.sh check           with PyPI's: the registers of each kernel, and that one which spills is refused
#
# A kernel that needs more registers than it may have, and keeps numbers in memory in their place, is an error. What was
# compiled is kept in the cache folder, by the hash of sources, flags and compiler.
set -eu
unset CDPATH # it would send cd elsewhere
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/native
flags='-std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80 -Xptxas -v,--warn-on-spills,-Werror'
if test "${1:-}" = check; then
  NVCC=$(python3 "$here/scripts/fetch.py" nvcc)
  export NVCC
  image=$("$0")
  # What ptxas said of each kernel, after its name.
  awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
       /spill stores/ { stack = $1; stores = $5; loads = $9 }
       /Used [0-9]+ registers/ {
         for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
         printf "cuda-kernels: %-26s %3d registers, %d bytes of stack, %d spilled\n", name, registers, stack, stores + loads
         kernels++
         if (stack + stores + loads > 0) bad = 1
       }
       END { printf "cuda-kernels: %d kernels for sm_90\n", kernels; exit bad || kernels == 0 }' "${image%.fatbin}.log"
  if said=$("$0" "$here/cgo/testdata/cuda/spills.cu" 2>&1) || ! echo "$said" | grep -q 'Registers are spilled'; then
    echo "cuda-kernels: a kernel that spills was not refused for it, the check is worth nothing: $said" >&2
    exit 1
  fi
  echo "cuda-kernels: a kernel that spills is refused; $(wc -c <"$image") bytes in $image"
  exit
fi
source=$(realpath "${1:-$here/cgo/src/cuda/kernels.cu}")
nvcc=${NVCC:-$(command -v nvcc || true)}
test -n "$nvcc" || ! test -x /usr/local/cuda/bin/nvcc || nvcc=/usr/local/cuda/bin/nvcc
test -n "$nvcc" || nvcc=$(python3 "$here/scripts/fetch.py" nvcc)
key=$( (echo "$flags"; "$nvcc" --version; cd "$here/cgo/src/cuda"; cat "$source" device.h head.h optimizer.h paged.h rows.h) | sha256sum | cut -c1-16)
image=$cache/kernels-$key.fatbin
if ! test -f "$image"; then
  mkdir -p "$cache"
  # shellcheck disable=SC2086 # the flags are meant to split
  if ! "$nvcc" $flags -fatbin -o "$image.tmp$$" "$source" >"$image.log$$" 2>&1; then
    grep -E 'error|spill' "$image.log$$" >&2 || cat "$image.log$$" >&2
    rm -f "$image.tmp$$" "$image.log$$"
    echo "cuda-kernels: $source does not compile with $nvcc" >&2
    exit 1
  fi
  mv "$image.log$$" "${image%.fatbin}.log"
  mv "$image.tmp$$" "$image"
fi
echo "$image"
