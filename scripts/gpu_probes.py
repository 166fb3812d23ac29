#!/usr/bin/env python3
"""What a GPU machine has and how fast it is, before anything of AgentFly runs on it: stage 1 of gpu_check.sh.

usage: gpu_probes.py [NAME...]      without names all of them; `list` prints the names

Each probe prints one line as soon as it is done: name, result and detail between tabs. The result is ok, FAILED or skipped. A probe that
fails does not end the others. QUICK=1 takes small sizes. Rates are medians of timed repetitions on random numbers, by CUDA events.
"""
import contextlib
import glob
import importlib.metadata
import math
import os
import platform
import shutil
import subprocess
import sys
import time

import torch

CUDA = torch.cuda.is_available()
QUICK = os.environ.get("QUICK", "0") != "0"
PROBES = {}


class Skip(Exception):
    """A probe has nothing to do here; the text says why."""


def probe(name, device=True):
    """Registers a function that returns the detail of its line."""
    def register(f):
        PROBES[name] = (f, device)
        return f
    return register


def seconds(f, repeat=10, warm=3):
    """Median seconds of f on the device, or on the CPU's clock."""
    for _ in range(warm):
        f()
    times = []
    for _ in range(repeat):
        if CUDA:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            f()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            start = time.perf_counter()
            f()
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def relative(got, want):
    """|got - want| / |want|; raises when anything is not finite."""
    got, want = got.double(), want.double()
    if not bool(torch.isfinite(got).all()):
        raise RuntimeError("a result is not finite")
    return float((got - want).norm() / want.norm())


def within(name, error, bound):
    if not error <= bound:
        raise RuntimeError(f"{name}: relative error {error:.1e}, allowed is {bound:.0e}")
    return f"{name} {error:.1e}"


def where():
    return "cuda" if CUDA else "cpu"


def said(*command):
    """The first line that a program prints, or why there is none."""
    path = shutil.which(command[0]) or next(iter(glob.glob(f"/usr/local/cuda*/bin/{command[0]}") + glob.glob(f"/opt/nvidia/*/{command[0]}")), None)
    if path is None:
        return "missing"
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"fails: {e}"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    numbered = [line for line in lines if "release" in line or "ersion" in line]
    return (numbered or lines or ["says nothing"])[0].strip()


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


@probe("software", device=False)
def software():
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if CUDA else "not asked"
    return (f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, NCCL {nccl}, "
            + ", ".join(f"{p} {version(p)}" for p in ("triton", "transformers", "numpy", "safetensors"))
            + f", {' '.join(platform.libc_ver())}, g++ {said('g++', '--version')}")


@probe("tools", device=False)
def tools():
    return "; ".join(f"{name}: {said(name, '--version')}" for name in ("nvcc", "ncu", "compute-sanitizer", "cuobjdump", "nsys"))


@probe("machine", device=False)
def machine():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    disk = shutil.disk_usage("/tmp").free / 2**30
    return f"{platform.release()}, {len(os.sched_getaffinity(0))} CPUs, {memory:.0f} GiB memory, {disk:.0f} GiB free in /tmp, {torch.get_num_threads()} threads of torch"


@probe("device")
def device():
    p = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return (f"{torch.cuda.device_count()} x {p.name}, capability {p.major}.{p.minor}, {p.multi_processor_count} multiprocessors, L2 {p.L2_cache_size / 2**20:.0f} MiB, "
            f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free, torch built for {' '.join(torch.cuda.get_arch_list())}")


@probe("memory rate")
def memory_rate():
    n = (256 << 20) if QUICK else (4 << 30)
    a = torch.empty(n, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    t = seconds(lambda: b.copy_(a))
    x = a.view(torch.float32)
    add = seconds(lambda: torch.add(x, 1.0, out=b.view(torch.float32)))
    return f"copy {2 * n / t / 1e12:.2f} TB/s, add {2 * n / add / 1e12:.2f} TB/s (read and written, {n >> 20} MiB)"


@probe("host to device and back")
def pinned_rate():
    n = (64 << 20) if QUICK else (1 << 30)
    d = torch.empty(n, dtype=torch.uint8, device="cuda")
    begin = time.perf_counter()
    h = torch.empty(n, dtype=torch.uint8, pin_memory=True).random_()
    took = time.perf_counter() - begin
    p = torch.empty(n, dtype=torch.uint8).random_()
    rates = {"pinned to device": seconds(lambda: d.copy_(h, non_blocking=True), 5), "device to pinned": seconds(lambda: h.copy_(d, non_blocking=True), 5),
             "pageable to device": seconds(lambda: d.copy_(p), 5), "device to pageable": seconds(lambda: p.copy_(d), 5)}
    return ", ".join(f"{k} {n / t / 1e9:.1f} GB/s" for k, t in rates.items()) + f"; pinning and filling {n >> 20} MiB took {took:.2f} s"


@probe("products, bfloat16")
def products():
    sizes = [(1024,) * 3] if QUICK else [(8192,) * 3, (8192, 896, 9728), (8192, 1536, 17920), (8192, 2048, 22016), (8192, 3584, 37888), (2048, 896, 151936)]
    out = []
    for m, k, n in sizes:
        a, b = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((m, k), (n, k)))
        rates = [seconds(lambda: torch.mm(a, b.t())), seconds(lambda: torch.mm(a, b.t(), out_dtype=torch.float32))]
        out.append(f"{m}x{k}x{n} " + "/".join(f"{2e-12 * m * k * n / t:.0f}" for t in rates))
    return "TFLOP/s to bfloat16/to float32: " + ", ".join(out)


@probe("products, gradients of weights")
def weight_products():
    t, k, n = (256, 64, 128) if QUICK else (8192, 2048, 22016)
    x, dy = (torch.randn(t, c, device="cuda", dtype=torch.bfloat16) for c in (k, n))
    out = torch.zeros(n, k, device="cuda")
    want = (dy.double().t() @ x.double()) if QUICK else dy.float().t() @ x.float()
    add = seconds(lambda: out.add_(torch.mm(dy.t(), x, out_dtype=torch.float32)), 5)
    detail = f"mm to float32 and add {2e-12 * t * k * n / add:.0f} TFLOP/s"
    try:
        got = torch.zeros_like(out)
        torch.ops.aten.addmm.dtype_out(got, dy.t(), x, torch.float32, out=got)
        error = within("addmm.dtype_out", relative(got, want), 1e-4)
        one = seconds(lambda: torch.ops.aten.addmm.dtype_out(out, dy.t(), x, torch.float32, out=out), 5)
        return f"{detail}; {error}, {2e-12 * t * k * n / one:.0f} TFLOP/s"
    except (RuntimeError, TypeError, AttributeError) as e:
        return f"{detail}; addmm.dtype_out does not take it: {str(e).splitlines()[0]}"


def forest(roots, root, answers, answer):
    """Segments (start, length, runs of ancestors) of prompts with answers behind each."""
    segments, t = [], 0
    for _ in range(roots):
        segments.append((t, root, []))
        first, t = t, t + root
        for _ in range(answers):
            segments.append((t, answer, [(first, root)]))
            t += answer
    return segments, t


def varlen(segments, dev):
    """cu_q, cu_k, index of the keys, most queries and keys."""
    cu_q, cu_k, index = [0], [0], []
    for start, length, runs in segments:
        for s, n in runs + [(start, length)]:
            index += range(s, s + n)
        cu_q.append(start + length)
        cu_k.append(len(index))
    ints = lambda v: torch.tensor(v, dtype=torch.int32, device=dev)
    most = max(b - a for a, b in zip(cu_k, cu_k[1:]))
    return ints(cu_q), ints(cu_k), torch.tensor(index, device=dev), max(2, max(n for _, n, _ in segments)), most


def explicit(q, k, v, segments, total):
    """Attention in float64 under a mask of all tokens: a token sees its ancestors and its own segment up to itself."""
    mask = torch.zeros(total, total, dtype=torch.bool, device=q.device)
    for start, length, runs in segments:
        for s, n in runs:
            mask[start:start + length, s:s + n] = True
        mask[start:start + length, start:start + length] = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    groups = q.shape[1] // k.shape[1]
    q, k, v = q.double().transpose(0, 1), k.double().repeat_interleave(groups, 1).transpose(0, 1), v.double().repeat_interleave(groups, 1).transpose(0, 1)
    scores = (q @ k.transpose(1, 2)) / math.sqrt(q.shape[-1])
    return (scores.masked_fill(~mask, -math.inf).softmax(-1) @ v).transpose(0, 1)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def flash(q, k, v, plan, d_out=None):
    """out and, with d_out, the gradients of q, k [T] and v [T]; the keys of a token are summed over its copies in float32."""
    cu_q, cu_k, index, max_q, max_k = plan
    ops = torch.ops.aten
    ks, vs = k[index], v[index]
    out, lse, rng, unused, _ = ops._flash_attention_forward(q, ks, vs, cu_q, cu_k, max_q, max_k, 0.0, True, False)
    if d_out is None:
        return out
    with deterministic():
        dq, dk, dv = ops._flash_attention_backward(d_out, q, ks, vs, out, lse, cu_q, cu_k, max_q, max_k, 0.0, True, rng, unused)
    total = lambda g: torch.zeros(k.shape, device=k.device).index_add_(0, index, g.float())
    return out, dq, total(dk), total(dv)


@probe("flash attention of a forest against an explicit mask")
def flash_values():
    out = []
    for shape, heads, keys, width in (((2, 33, 3, 70), 14, 2, 64), ((3, 150, 2, 1), 12, 2, 128), ((1, 257, 0, 0), 4, 4, 64)):
        segments, total = forest(*shape)
        torch.manual_seed(total)
        q, k, v, d = (torch.randn(total, h, width, device="cuda", dtype=torch.bfloat16) for h in (heads, keys, keys, heads))
        leaves = [x.double().requires_grad_() for x in (q, k, v)]
        want = explicit(*leaves, segments, total)
        want.backward(d.double())
        got = flash(q, k, v, varlen(segments, "cuda"), d)
        again = flash(q, k, v, varlen(segments, "cuda"), d)
        errors = [within(n, relative(g, w), b) for n, g, w, b in zip(("out", "dq", "dk", "dv"), got, [want.detach()] + [x.grad for x in leaves], (6e-3, 1e-2, 1e-2, 8e-3))]
        if not all(torch.equal(a, b) for a, b in zip(got[:2], again[:2])):
            raise RuntimeError("deterministic mode: out or dq has other bits the second time")
        out.append(f"{len(segments)} segments, heads of {width}: " + ", ".join(errors))
    return "; ".join(out) + "; dq the same bits twice"


@probe("flash attention, speed")
def flash_speed():
    out = []
    for name, shape in (("8x1024", (8, 1024, 0, 0)), ("1x8192", (1, 8192, 0, 0)), ("72 segments", (8, 192, 8, 104))):
        segments, total = forest(*shape)
        plan = varlen(segments, "cuda")
        for heads, keys, width in ((14, 2, 64), (16, 2, 128)):
            q, k, v, d = (torch.randn(total, h, width, device="cuda", dtype=torch.bfloat16) for h in (heads, keys, keys, heads))
            pairs = sum(n * (sum(r[1] for r in runs) + (n + 1) / 2) for _, n, runs in segments)
            forward = seconds(lambda: flash(q, k, v, plan), 5)
            both = seconds(lambda: flash(q, k, v, plan, d), 5)
            flop = 4e-12 * pairs * heads * width
            out.append(f"{name} {heads}x{width}: forward {forward * 1e3:.2f} ms ({flop / forward:.0f} TFLOP/s), with backward {both * 1e3:.2f} ms")
    return "; ".join(out)


@probe("fused operators against their definitions", device=False)
def fused():
    torch.manual_seed(1)
    dev, low = where(), torch.bfloat16
    out = []
    x, w = torch.randn(512, 896, device=dev), torch.randn(896, device=dev)
    y, rstd = torch.ops.aten._fused_rms_norm(x, [896], w, 1e-6)
    want = x.double() * (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w.double()
    out.append(within("_fused_rms_norm", relative(y, want), 1e-5))
    if CUDA:
        y, rstd = torch.ops.aten._fused_rms_norm(x.to(low), [896], w.to(low), 1e-6)
        out.append(within("in bfloat16", relative(y, want), 1e-2))
        leaf, weight, d = x.double().requires_grad_(), w.double().requires_grad_(), torch.randn_like(x)
        (leaf * (leaf.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight).backward(d.double())
        _, rstd = torch.ops.aten._fused_rms_norm(x, [896], w, 1e-6)
        dx, dw = torch.ops.aten._fused_rms_norm_backward(d, x, [896], rstd, w, [True, True])
        out += [within("dx", relative(dx, leaf.grad), 1e-5), within("dw", relative(dw, weight.grad), 1e-5)]
    p, g = torch.randn(10000, device=dev), torch.randn(10000, device=dev)
    m, v, step = torch.zeros_like(p), torch.zeros_like(p), torch.tensor(0.0, device=dev)
    exact = [t.double().clone() for t in (p, m, v)]
    for i in range(1, 4):
        step += 1
        torch._fused_adamw_([p], [g], [m], [v], [], [step], lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
        exact[1] = 0.9 * exact[1] + 0.1 * g.double()
        exact[2] = 0.95 * exact[2] + 0.05 * g.double().square()
        exact[0] = exact[0] * (1 - 1e-4) - 1e-3 * (exact[1] / (1 - 0.9**i)) / ((exact[2] / (1 - 0.95**i)).sqrt() + 1e-8)
    out.append(within("_fused_adamw_", relative(p, exact[0]), 1e-6))
    return ", ".join(out)


@probe("fused operators, speed")
def fused_speed():
    n = (1 << 20) if QUICK else (1 << 28)
    p, g, m, v = (torch.randn(n, device="cuda") for _ in range(4))
    v.abs_()
    step = torch.tensor(3.0, device="cuda")
    adam = seconds(lambda: torch._fused_adamw_([p], [g], [m], [v], [], [step], lr=1e-9, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False), 5)
    norm = seconds(lambda: torch.linalg.vector_norm(g, dtype=torch.float32), 5)
    cast = seconds(lambda: p.to(torch.bfloat16), 5)
    del p, m, v
    rows = 256 if QUICK else 2048
    z = torch.randn(rows, 151936, device="cuda")
    lse = seconds(lambda: torch.logsumexp(z, 1), 5)
    x = torch.randn(8192, 2048, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(2048, device="cuda", dtype=torch.bfloat16)
    rms = seconds(lambda: torch.ops.aten._fused_rms_norm(x, [2048], w, 1e-6), 10)
    return (f"AdamW {28 * n / adam / 1e12:.2f} TB/s ({adam * 1e3:.2f} ms for {n / 1e6:.0f}M), norm {4 * n / norm / 1e12:.2f} TB/s, to bfloat16 {6 * n / cast / 1e12:.2f} TB/s, "
            f"logsumexp [{rows}, 151936] {lse * 1e3:.2f} ms ({z.numel() * 4 / lse / 1e12:.2f} TB/s), RMSNorm [8192, 2048] {rms * 1e6:.0f} µs ({x.numel() * 4 / rms / 1e12:.2f} TB/s)")


@probe("launches", device=False)
def launches():
    x = torch.zeros(1, device=where())
    wait = torch.cuda.synchronize if CUDA else (lambda: None)

    def clock(f, n):
        f()
        wait()
        begin = time.perf_counter()
        for _ in range(n):
            f()
        wait()
        return (time.perf_counter() - begin) / n * 1e6
    n = 200 if QUICK else 2000
    detail = f"add_ of one number {clock(lambda: x.add_(1), n):.1f} µs, read back (item) {clock(lambda: x.item(), n):.1f} µs"
    if not CUDA:
        return detail + " (on the CPU)"
    a, b = (torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    detail += f", product of 64x64 {clock(lambda: torch.mm(a, b), n):.1f} µs"
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(1)
    return detail + f", of a graph of 100 {clock(graph.replay, 50) / 100:.2f} µs each"


@probe("Triton")
def triton_runs():
    import tempfile
    import textwrap
    import importlib.util
    source = textwrap.dedent("""
        import triton, triton.language as tl
        @triton.jit
        def double(x, n, B: tl.constexpr):
            i = tl.program_id(0) * B + tl.arange(0, B)
            tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
        """)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel_of_probe.py")  # Triton reads a kernel's source file
        with open(path, "w") as f:
            f.write(source)
        spec = importlib.util.spec_from_file_location("kernel_of_probe", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.arange(1000, device="cuda", dtype=torch.float32)
        begin = time.perf_counter()
        module.double[(4,)](x, 1000, B=256)
        torch.cuda.synchronize()
        took = time.perf_counter() - begin
    if not torch.equal(x.cpu(), 2 * torch.arange(1000, dtype=torch.float32)):
        raise RuntimeError("a doubled row has other numbers")
    return f"compiles and runs, {took:.1f} s the first time"


def share(pipe):
    """The other process of ipc: opens the handle, adds one, says when."""
    tensor = pipe.recv()
    begin = time.perf_counter()
    copy = tensor.clone()
    tensor.add_(1)
    torch.cuda.synchronize()
    pipe.send((float(copy[0]), time.perf_counter() - begin))
    pipe.recv()


@probe("CUDA IPC between two processes")
def ipc():
    import torch.multiprocessing as mp
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=share, args=(there,), daemon=True)
    worker.start()
    n = (1 << 20) if QUICK else (1 << 29)
    x = torch.full((n,), 3.0, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    try:
        here.send(x)
        if not here.poll(90):
            raise RuntimeError("the other process has not answered in 90 s" + ("" if worker.is_alive() else f": it ended with {worker.exitcode}"))
        seen, copied = here.recv()
        took = time.perf_counter() - begin
        if seen != 3.0 or float(x[0]) != 4.0:
            raise RuntimeError(f"the other process read {seen} of 3.0, and left {float(x[0])} of 4.0")
        here.send(None)
    finally:
        worker.join(10)
        if worker.is_alive():
            worker.terminate()
    return f"{2 * n >> 20} MiB of bfloat16 copied from the other's memory in {copied * 1e3:.1f} ms; {took:.1f} s with the start of the process"


@probe("memory given back and taken again")
def give_back():
    n = (1 << 26) if QUICK else (1 << 31)
    x = torch.empty(n, dtype=torch.float32, device="cuda").normal_()
    first = float(x[-1])
    begin = time.perf_counter()
    host = torch.empty(n, dtype=torch.float32, pin_memory=True)
    pinned = time.perf_counter() - begin
    before = torch.cuda.mem_get_info()[0]
    begin = time.perf_counter()
    host.copy_(x)
    del x
    torch.cuda.empty_cache()
    away = time.perf_counter() - begin
    free = torch.cuda.mem_get_info()[0] - before
    begin = time.perf_counter()
    x = host.to("cuda")
    torch.cuda.synchronize()
    back = time.perf_counter() - begin
    if float(x[-1]) != first:
        raise RuntimeError("what came back is not what went")
    if free < 3.9 * n:
        raise RuntimeError(f"of {4 * n >> 20} MiB only {free >> 20} came free")
    return f"{4 * n >> 20} MiB: pinning {pinned:.2f} s, to the host {away:.2f} s, back {back:.2f} s; {free >> 20} MiB came free"


def main():
    names = sys.argv[1:] or list(PROBES)
    if names == ["list"]:
        print("\n".join(PROBES))
        return
    for name in names:
        if name not in PROBES:
            sys.exit(f"gpu_probes: no probe is named {name!r}; allowed are {', '.join(PROBES)}")
        run, device = PROBES[name]
        result = "ok"
        try:
            if device and not CUDA:
                raise Skip("no CUDA device")
            detail = run()
        except Skip as e:
            result, detail = "skipped", str(e)
        except Exception as e:  # any: the others still run
            result, detail = "FAILED", f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:300]}"
            import traceback
            traceback.print_exc()
        print(f"{name}\t{result}\t{detail}", flush=True)
        if CUDA:
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
