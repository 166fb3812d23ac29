"""usage: vllm_stubs.py SITE-PACKAGES: lets torch's CUDA build load on a machine without CUDA.

torch from PyPI is linked to some ten CUDA libraries (3 GB of wheels) of which a CPU run calls none, but the loader wants
the files, their version nodes and the addresses. This writes for each one that is missing a library of a few kilobytes
that has them; every function in it returns 1, which CUDA reads as an error. cudart and cupti are real wheels.

Needs cc, and readelf of binutils.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

REAL = {"libcudart.so.13", "libcupti.so.13", "libcuda.so.1"}
CUDA = re.compile(r"lib(cu|nccl|nv)\S*\.so")
CUDA_SYMBOL = re.compile(r"(cu|nccl|nvshmem|nvml)")


def readelf(flag, file):
    return subprocess.run(["readelf", "-W", flag, file], capture_output=True, text=True, check=True).stdout


def wanted(file):
    """{library: {version node or "": {symbols}}} of the CUDA libraries that a shared object is linked to."""
    libraries = [n for n in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", file)) if CUDA.match(n) and n not in REAL]
    out = {name: collections.defaultdict(set) for name in libraries}
    owner = {}  # version node -> library
    library = None
    for line in readelf("-V", file).splitlines():
        if found := re.search(r"Version: \d+\s+File: (\S+)", line):
            library = found.group(1)
        elif library and (found := re.search(r"Name: (\S+)\s+Flags:", line)):
            owner[found.group(1)] = library
    unversioned = [name for name in libraries if name not in owner.values()]
    for line in readelf("--dyn-syms", file).splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] != "UND":
            continue
        symbol, _, node = fields[7].partition("@")
        if node and owner.get(node) in out:
            out[owner[node]][node].add(symbol)
        elif not node and CUDA_SYMBOL.match(symbol):
            for name in unversioned:  # which one has it is not recorded; any will do
                out[name][""].add(symbol)
    return out


def build(target, name, nodes, folder):
    source, script = folder / "stub.c", folder / "stub.map"
    symbols = sorted(set().union(*nodes.values()))
    source.write_text("int agentfly_stub(void) { return 1; }\n" + "".join(f"int {s}(void) {{ return 1; }}\n" for s in symbols))
    command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{name}", "-o", target / name, source]
    versions = {node: symbols for node, symbols in nodes.items() if node}
    if versions:
        script.write_text("".join(f"{node} {{ global: {' '.join(s + ';' for s in sorted(symbols))} }};\n" for node, symbols in versions.items()))
        command.append(f"-Wl,--version-script,{script}")
    subprocess.run(command, check=True)


def main():
    site = pathlib.Path(sys.argv[1])
    target = site / "nvidia" / "cu13" / "lib"  # where torch's libraries look
    libraries = collections.defaultdict(lambda: collections.defaultdict(set))
    for file in sorted((site / "torch" / "lib").glob("*.so*")):
        for name, nodes in wanted(file).items():
            libraries[name][""]  # the file must be there even if no symbol is asked of it
            for node, symbols in nodes.items():
                libraries[name][node] |= symbols
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, nodes in sorted(libraries.items()):
            if not (target / name).exists():
                build(target, name, nodes, pathlib.Path(folder))
    print(f"vllm: {len(libraries)} stand-ins for CUDA libraries", file=sys.stderr)


if __name__ == "__main__":
    main() if len(sys.argv) == 2 else sys.exit(__doc__)
