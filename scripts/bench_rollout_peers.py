#!/usr/bin/env python3
"""The workload of bench_rollout through Python clients, against the same server: prints one JSON line.

    bench_rollout_peers.py aiohttp|aiohttp-1024|openai|verifiers WORKLOAD URL SERVER_PID CONCURRENT WARM_SECONDS SECONDS

aiohttp is a bare loop: token ids in, token ids and logprobs out of the decoded JSON, nothing kept but the ids of the next
prompt; aiohttp-1024 has at most that many connections, as our client has.
openai is AsyncOpenAI.completions with the same token ids. verifiers is a MultiTurnEnv over AsyncOpenAI's chat completions.
Every trajectory waits for its tool as the Go side does. A turn counts when its tool has answered.
"""
import asyncio
import functools
import json
import os
import pathlib
import sys
import threading
import time
import traceback

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PARAMETERS = {  # what engines/vllm sends
    "max_tokens": 64, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": 1, "n": 1, "logprobs": 0, "ignore_eos": True, "stop_token_ids": [2],
    "stop": ["</lookup>", "</answer>"], "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_tokens": 0,
    "skip_special_tokens": False, "spaces_between_special_tokens": False, "include_stop_str_in_output": True,
}
OPENAI = {"max_tokens", "temperature", "top_p", "seed", "n", "logprobs", "stop", "presence_penalty", "frequency_penalty"}


class Count:
    def __init__(self):
        self.turns, self.finished, self.on, self.seconds = 0, 0, False, []

    def completion(self, start):
        if self.on:
            self.seconds.append(time.perf_counter() - start)


def cpu(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * PAGE


async def trajectories(work, count, tool, complete):
    """One trajectory after the other, with a client's way to complete a prompt of ids."""
    while True:
        ids = list(work["prompt"])
        for turn in range(work["turns"]):
            start = time.perf_counter()
            sampled, logprobs = await complete(ids)
            count.completion(start)
            assert len(sampled) == len(logprobs) == len(work["completion"])
            await asyncio.sleep(tool)
            ids = ids + sampled + work["observation"]
            count.turns += 1
        count.finished += 1


async def run_aiohttp(work, url, n, count, limit=0):
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=limit), timeout=aiohttp.ClientTimeout(total=None)) as session:
        async def complete(ids):
            async with session.post(url + "/inference/v1/generate", json={"token_ids": ids, "sampling_params": PARAMETERS, "model": "policy", "stream": False}) as reply:
                choice = (await reply.json())["choices"][0]
                return choice["token_ids"], [c["logprob"] for c in choice["logprobs"]["content"]]

        await asyncio.gather(*(trajectories(work, count, work["tool_seconds"], complete) for _ in range(n)))


async def run_openai(work, url, n, count):
    import httpx
    from openai import AsyncOpenAI

    known = {k: v for k, v in PARAMETERS.items() if k in OPENAI}
    extra = {k: v for k, v in PARAMETERS.items() if k not in OPENAI} | {"return_token_ids": True, "return_tokens_as_token_ids": True}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with AsyncOpenAI(base_url=url + "/v1", api_key="none", http_client=httpx.AsyncClient(limits=limits, timeout=None)) as client:
        async def complete(ids):
            reply = await client.completions.create(model="policy", prompt=ids, extra_body=extra, **known)
            return reply.choices[0].token_ids, reply.choices[0].logprobs.token_logprobs

        await asyncio.gather(*(trajectories(work, count, work["tool_seconds"], complete) for _ in range(n)))


def measure(count, name, n, server, warm, window, before, done):
    """Runs in a thread of its own, so that a busy loop does not shift what it measures; prints the line and ends the process."""
    most = 0

    def wait(seconds):
        nonlocal most
        end = time.monotonic() + seconds
        while time.monotonic() < end and not done.is_set():
            most = max(most, resident())
            time.sleep(0.1)

    wait(warm)
    pids = (os.getpid(), server)
    cpus, turns, start = [cpu(p) for p in pids], count.turns, time.monotonic()
    count.on = True
    wait(window)
    if done.is_set():
        print("peers: the clients ended too early", file=sys.stderr)
        os._exit(1)
    took = time.monotonic() - start
    took_turns, used = count.turns - turns, [cpu(p) - c for p, c in zip(pids, cpus)]
    seconds = sorted(count.seconds)
    print(json.dumps({
        "client": name, "concurrent": n, "turns_per_second": took_turns / took, "client_cpu": used[0] / took, "server_cpu": used[1] / took,
        "kib_per_trajectory": (most - before) / 1024 / n, "p99_seconds": seconds[len(seconds) * 99 // 100] if seconds else None,
        "seconds": took, "trajectories": count.finished,
    }), flush=True)
    os._exit(0)


async def main():
    name, path, url, server, n, warm, window = sys.argv[1:]
    work, n, count = json.loads(pathlib.Path(path).read_text()), int(n), Count()
    if name == "verifiers":
        import bench_rollout_verifiers
        run = bench_rollout_verifiers.run
    else:
        run = {"aiohttp": run_aiohttp, "aiohttp-1024": functools.partial(run_aiohttp, limit=1024), "openai": run_openai}[name]
        __import__(name.removesuffix("-1024"))
    done = threading.Event()
    threading.Thread(target=measure, args=(count, name, n, int(server), float(warm), float(window), resident(), done), daemon=True).start()
    try:
        await run(work, url, n, count)
    except BaseException:
        traceback.print_exc()
    done.set()
    await asyncio.sleep(1)  # the thread says that it is too early


if __name__ == "__main__":
    asyncio.run(main())
