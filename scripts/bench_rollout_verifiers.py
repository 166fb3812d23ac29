"""The workload as a MultiTurnEnv of verifiers, for bench_rollout_peers.py."""
import asyncio
import os
import time

import verifiers as vf
from datasets import Dataset
from verifiers.clients import resolve_client
from verifiers.types import ClientConfig, UserMessage


class Lookup(vf.MultiTurnEnv):
    """Every completion calls the tool, which takes its time."""

    def __init__(self, work, count):
        self.work, self.count = work, count
        question = [{"role": "system", "content": "Solve the problem by calling the lookup."}, {"role": "user", "content": work["question"]}]
        super().__init__(max_turns=work["turns"], dataset=Dataset.from_list([{"prompt": question, "answer": "42"}]), rubric=vf.Rubric(funcs=[score]))

    async def tool(self):
        await asyncio.sleep(self.work["tool_seconds"])
        self.count.turns += 1

    async def env_response(self, messages, state, **kwargs):
        await self.tool()
        return [UserMessage(content="<result>" + self.work["result"] + "</result>")]

    async def get_model_response(self, *args, **kwargs):
        start = time.perf_counter()
        reply = await super().get_model_response(*args, **kwargs)
        self.count.completion(start)
        return reply


async def score(completion, answer, **kwargs):
    return float(answer in completion[-1].content)


async def run(work, url, n, count):
    os.environ["PEERS_KEY"] = "none"
    env = Lookup(work, count)
    client = resolve_client(ClientConfig(api_base_url=url + "/v1", api_key_var="PEERS_KEY", connect_timeout=3600.0))
    sampling = {"max_tokens": 64, "temperature": 1.0, "top_p": 1.0, "seed": 1, "logprobs": True}

    async def trajectories(i):
        while True:
            row = {"prompt": env.dataset[0]["prompt"], "answer": "42", "example_id": i}
            out = await env.run_rollout(row, client, "policy", sampling)
            assert out.get("error") is None, out["error"]
            await env.tool()  # of the last turn, after which the environment is not asked
            count.finished += 1

    await asyncio.gather(*(trajectories(i) for i in range(n)))
