#!/bin/sh
# Compile the C++ library (cgo/src) and gotorch's C++ side against libtorch, and print the folder that holds the result:
# lib/libagentfly.so, lib/libcgotorch.so, and env.sh, which sets CGO_LDFLAGS for `go build -tags torch`.
#
# usage: build_native.sh [plain|asan]
#
# Objects are kept in the cache folder, keyed by the hash of source, headers, flags, compiler and libtorch; the folder's
# own name is such a hash too, because Go's build cache does not look into shared libraries: a changed library needs
# changed linker flags to be linked again.
set -eu
unset CDPATH # it would send cd elsewhere
kind=${1:-plain}
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentfly/native
whole() { # whole WHOSE PATH ADVICE: refuses a path that the compiler's commands and CGO_LDFLAGS would take for two
  case $2 in *[[:space:]]*) ;; *) return 0 ;; esac
  echo "build: $1 path has a blank, which the compiler's flags cannot hold: $2; $3" >&2
  exit 1
}
whole "the checkout's" "$here" 'move it'
whole "the cache's" "$cache" 'set XDG_CACHE_HOME to another folder'
# AGENTFLY_GOTORCH=DIR holds gotorch's cgotorch folder on a machine without Go: see gpu_check.sh
needs='g++:g++ python3:python3'
test -n "${AGENTFLY_GOTORCH:-}" || needs="go:golang $needs"
for need in $needs; do
  command -v "${need%%:*}" >/dev/null || { echo "build: ${need%%:*} is missing; install it: apt-get install ${need##*:}" >&2; exit 1; }
done
torch=$(python3 "$here/scripts/fetch.py" libtorch)
whole "libtorch's" "$torch" 'set LIBTORCH to another folder'
test -d "$torch/include" || { echo "build: no libtorch" >&2; exit 1; }
cd "$here"
gotorch=${AGENTFLY_GOTORCH:-}
if test -z "$gotorch"; then
  go mod download github.com/wangkuiyi/gotorch
  gotorch=$(go list -m -f '{{.Dir}}' github.com/wangkuiyi/gotorch)
fi
whole "gotorch's" "$gotorch" 'set GOMODCACHE to another folder'

includes="-isystem $torch/include -isystem $torch/include/torch/csrc/api/include"
case $kind in
plain) flags="-std=c++20 -O3 -fPIC -fno-math-errno -fno-trapping-math -Wall" link="-Wl,-z,defs" ;;
asan) flags="-std=c++20 -O1 -g -fPIC -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize=vptr -Wall" link="-fsanitize=address,undefined" ;;
*) echo "usage: build_native.sh [plain|asan]" >&2; exit 2 ;;
esac
identity="$kind $flags $(g++ --version | head -n 1) $torch $(cksum <"$torch/lib/libc10.so")"
hash_of() { cat "$@" | sha256sum | cut -c1-16; }
mkdir -p "$cache/obj"

# key FILE FLAGS HEADERS...: the object's name
jobs=$(mktemp) && trap 'rm -f "$jobs"' EXIT
add() { # add SOURCE FLAGS HEADERS...
  source=$1 extra=$2
  shift 2
  key=$( (printf '%s %s %s' "$identity" "$extra" "$(basename "$source")"; cat "$source" "$@") | sha256sum | cut -c1-20)
  object="$cache/obj/$(basename "$source" .cc)-$key.o"
  test -f "$object" || printf '%s\n' "{ test -f $object || { g++ $flags $extra $includes -c $source -o $object.tmp\$\$ && mv $object.tmp\$\$ $object; }; }" >>"$jobs"
}
ours='' theirs=''
# c10d: Gloo is in every libtorch, its headers are not. NCCL where libtorch has CUDA: a header that is not found is an
# error, because a build without NCCL would exchange gradients and weights through the CPU and only be slow.
# AGENTFLY_BUILD_NCCL=0 builds without it.
nccl='' graphs='' cuda_includes='' site=$(dirname "$torch")
if test -f "$torch/lib/libtorch_cuda.so"; then
  for folder in "$site"/nvidia/nccl/include "$site"/nvidia/cu*/include "$site"/nvidia/*/include /usr/local/cuda/include; do
    test -d "$folder" && case " $cuda_includes " in *" $folder "*) ;; *) cuda_includes="$cuda_includes -isystem $folder" ;; esac
  done
  # shellcheck disable=SC2086 # the list is meant to split
  if echo '#include <cuda_runtime_api.h>' | g++ $cuda_includes -x c++ -fsyntax-only - 2>/dev/null; then
    graphs="-DAF_CUDA_GRAPHS $cuda_includes"
  else
    echo "build: cuda_runtime_api.h is not beside libtorch: decode steps on a GPU launch each operation anew" >&2
  fi
fi
if test -f "$torch/lib/libtorch_cuda.so" && test "${AGENTFLY_BUILD_NCCL:-1}" != 0; then
  # shellcheck disable=SC2086 # the list is meant to split
  if ! missing=$(printf '#include <%s>\n' nccl.h cuda_runtime_api.h cuda_fp16.h cublas_v2.h cublasLt.h cusparse.h cusolverDn.h |
    g++ $cuda_includes -x c++ -fsyntax-only - 2>&1); then
    echo "build: libtorch has CUDA, but what NCCL is compiled with is not whole beside it:" >&2
    printf '%s\n' "$missing" | grep -m1 'error:' >&2
    echo "build: install it (pip install nvidia-nccl-cu13 nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl nvidia-cublas nvidia-cusparse nvidia-cusolver," >&2
    echo "build: of torch's own versions), or set AGENTFLY_BUILD_NCCL=0: ranks then exchange tensors through the CPU" >&2
    exit 1
  fi
  nccl="-DUSE_C10D_NCCL $cuda_includes"
fi
# The kernels of CUDA, as the library carries them: see cuda_kernels.sh. AGENTFLY_KERNELS=FILE is compiled already, as in
# the bundle of a GPU machine; AGENTFLY_BUILD_KERNELS=0 builds without them, and libtorch's own operations do their work.
image=''
if test -f "$torch/lib/libtorch_cuda.so" && test "${AGENTFLY_BUILD_KERNELS:-1}" != 0; then
  if ! image=${AGENTFLY_KERNELS:-$(scripts/cuda_kernels.sh)} || ! test -f "$image"; then
    echo "build: libtorch has CUDA, but the kernels are not there ($image): put nvcc on PATH, or set NVCC to it, or set" >&2
    echo "build: AGENTFLY_BUILD_KERNELS=0: libtorch's own operations are then used, which are slower" >&2
    exit 1
  fi
  image=$(cd "$(dirname "$image")" && pwd)/$(basename "$image")
  whole "the kernels'" "$image" 'set AGENTFLY_KERNELS to another place'
fi
for f in cgo/src/*.cc cgo/src/cuda/*.cc; do
  headers=''
  ! grep -q '^#include "cuda/' "$f" || headers=cgo/src/cuda/launch.h
  extra="-fopenmp -Wno-psabi" # without OpenMP at::parallel_for uses one thread
  case $f in
  */collective.cc) extra="$extra -DUSE_C10D_GLOO -isystem cgo/src/gloo" ;;
  */nccl.cc) extra="$extra $nccl" ;;
  */cuda/image.cc)
    headers=cgo/src/cuda/image.h
    test -z "$image" || extra="$extra -DAF_CUDA_IMAGE='\"$image\"'" headers="$headers $image"
    ;;
  */cuda/graph.cc) extra="$extra $graphs" headers='cgo/src/cuda/graph.h cgo/src/cuda/launch.h' ;;
  */cuda/*) headers='cgo/src/cuda/driver.h cgo/src/cuda/image.h cgo/src/cuda/launch.h cgo/src/cuda/scripted.h' ;;
  */single_rows.cc) headers='cgo/src/cuda/graph.h cgo/src/cuda/scripted.h' ;;
  esac
  # shellcheck disable=SC2086 # the pattern is meant to expand
  add "$here/$f" "$extra" $headers cgo/af.h cgo/src/*.h cgo/src/gloo/gloo/*.h cgo/src/gloo/gloo/*/*.h
  ours="$ours $object"
done
# What the tests of CUDA's path have in place of a device: CUDA's own operators for the CPU, and a libcuda.so.1 that runs
# the kernels there; once without barriers, which a test finds. Libraries of their own, that only tests load.
scripted="-DAF_CPU_BLOCKS -O2 -fno-sanitize=all -fno-gnu-unique -Wno-unknown-pragmas -Wno-clobbered -Icgo/testdata/cuda"
add "$here/cgo/testdata/cuda/stand_ins.cc" -Wno-psabi
stand_ins=$object
add "$here/cgo/testdata/cuda/scripted_cuda.cc" "$scripted" cgo/testdata/cuda/blocks.h cgo/src/cuda/*.h cgo/src/cuda/kernels.cu
driver=$object
add "$here/cgo/testdata/cuda/scripted_cuda.cc" "$scripted -DAF_NO_BARRIERS" cgo/testdata/cuda/blocks.h cgo/src/cuda/*.h cgo/src/cuda/kernels.cu
racy=$object
# Two symbols of gotorch are renamed, and cgo/src/common.cc defines them anew: Tensor_Close (its finalizer may run while
# C++ reads the tensor) and SetNumThreads (its init throws on a machine with one CPU).
for f in "$gotorch"/cgotorch/*.cc; do
  case $f in
  */tensor.cc) extra="-DTensor_Close=Tensor_Close_orig -w -I$gotorch" ;;
  */device.cc) extra="-DSetNumThreads=SetNumThreads_orig -w -I$gotorch" ;;
  *) extra="-w -I$gotorch" ;;
  esac
  add "$f" "$extra" "$gotorch"/cgotorch/*.h
  theirs="$theirs $object"
done
if test -s "$jobs"; then
  # Builds that begin at once would compile every file as often; the second one waits and finds what the first one made.
  . "$here/scripts/alone.sh"
  alone "$cache/build" "build: another build"
  echo "build: compiling $(wc -l <"$jobs") C++ files ($kind)" >&2
  dot=: # on a terminal each file that is done is a dot
  if test -t 2 && test "${TERM:-dumb}" != dumb && test -z "${AGENTFLY_PLAIN:-}"; then dot='printf . >\&2'; fi
  sed "s/$/ \&\& $dot/" "$jobs" | tr '\n' '\0' | xargs -0 -P "${BUILD_JOBS:-2}" -n 1 sh -c || { echo "build: a C++ file did not compile" >&2; exit 1; }
  test "$dot" = : || echo >&2
fi

cuda=''
if test -f "$torch/lib/libtorch_cuda.so"; then # without --no-as-needed no CUDA kernel registers itself
  cuda="-Wl,--no-as-needed -ltorch_cuda -lc10_cuda -Wl,--as-needed"
fi
# libtorch's own OpenMP runtime: two in one process would start twice the threads.
gomp=$(find "$torch/lib" -name 'libgomp*.so*' | sort | head -n 1)
gomp=${gomp:--lgomp}
out="$cache/$kind-$( (echo "$identity $cuda $link $ours $theirs $stand_ins $driver $racy"; cat "$here/scripts/build_native.sh") | sha256sum | cut -c1-16)"
if ! test -f "$out/env.sh"; then
  rm -rf "$out.tmp$$" && mkdir -p "$out.tmp$$/lib" "$out.tmp$$/test"
  rpath="-Wl,-rpath,\$ORIGIN:\$ORIGIN/../libtorch/torch/lib:$torch/lib"
  # shellcheck disable=SC2086 # the lists are meant to split
  g++ -shared -Wl,-soname,libagentfly.so $link -o "$out.tmp$$/lib/libagentfly.so" $ours -L"$torch/lib" -ltorch_cpu -lc10 $gomp $cuda "$rpath"
  # shellcheck disable=SC2086
  g++ -shared -Wl,-soname,libcgotorch.so $link -o "$out.tmp$$/lib/libcgotorch.so" $theirs -L"$out.tmp$$/lib" -lagentfly -L"$torch/lib" -ltorch_cpu -lc10 $cuda "$rpath"
  # shellcheck disable=SC2086
  g++ -shared $link -o "$out.tmp$$/test/libstandins.so" "$stand_ins" -L"$torch/lib" -ltorch_cpu -lc10 "$rpath"
  # shellcheck disable=SC2086
  g++ -shared $link -o "$out.tmp$$/test/libcuda.so.1" "$driver"
  # shellcheck disable=SC2086
  g++ -shared $link -o "$out.tmp$$/test/libcuda-without-barriers.so.1" "$racy"
  echo 'INPUT(-ltorch_cpu)' >"$out.tmp$$/lib/libtorch.so" # gotorch asks for -ltorch, which a CPU libtorch folder lacks
  cat >"$out.tmp$$/env.sh" <<ENV
export CGO_LDFLAGS='-L$out/lib -L$torch/lib -lagentfly -Wl,-rpath,\$ORIGIN/../lib -Wl,-rpath,$out/lib -Wl,-rpath,$torch/lib'
export AGENTFLY_NATIVE='$out' AGENTFLY_LIBTORCH='$torch'
ENV
  if ! test -d "$out"; then mv "$out.tmp$$" "$out"; else rm -rf "$out.tmp$$"; fi
fi
echo "$out"
