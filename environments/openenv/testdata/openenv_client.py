"""OpenEnv's own clients against a server of ours. usage: openenv_client.py URL KEY texts|tools|full|validate|webshop"""
import asyncio
import re
import sys

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

URL, KEY, WHAT = sys.argv[1:4]
HEADERS = {"Authorization": f"Bearer {KEY}"}


async def fails(awaitable, want):
    try:
        await awaitable
    except Exception as e:  # noqa: BLE001 whatever OpenEnv raises
        assert want in str(e), (want, str(e))
        return
    raise AssertionError(f"no error that says {want}")


async def texts():
    async with GenericEnvClient(base_url=URL, headers=HEADERS) as env:
        r = await env.reset(seed=5, episode_id="ep-1", low=9)
        assert r.observation["text"] == "Guess a digit." and r.reward is None and not r.done, r
        r = await env.step({"action": "0"})
        assert r.observation["text"] == "higher" and r.reward == 0 and not r.done, r
        assert (await env.state()) == {"episode_id": "ep-1", "step_count": 1}
        await fails(env.step({"guess": 1}), "VALIDATION_ERROR")
        r = await env.step({"action": "9", "metadata": {"note": "last"}})
        assert r.observation["text"] == "right" and r.reward == 1 and r.done, r
        assert r.observation["metadata"]["truncated"] is False, r
        await fails(env.step({"action": "9"}), "the episode is over")
        await fails(env.reset(foo=1), "the environment's reset has no")
        for seed in range(20):
            r = await env.reset(seed=seed)
            while not r.done:
                r = await env.step({"action": "5"})
    many = [GenericEnvClient(base_url=URL, headers=HEADERS) for _ in range(8)]

    async def play(env):
        async with env:
            for seed in range(10):
                r = await env.reset(seed=seed)
                while not r.done:
                    r = await env.step({"action": "4"})

    await asyncio.gather(*[play(env) for env in many])
    wrong = GenericEnvClient(base_url=URL, headers={"Authorization": "Bearer wrong"})
    await fails(wrong.connect(), "401")


async def tools():
    async with MCPToolClient(base_url=URL, headers=HEADERS) as env:
        await env.reset(seed=1, low=9)
        found = await env.list_tools()
        assert [t.name for t in found] == ["guess"] and found[0].input_schema["required"] == ["digit"], found
        assert await env.call_tool("guess", digit=0) == "higher"
        await fails(env.call_tool("guess", digit="x"), "must be an integer")
        await fails(env.call_tool("nope"), "Unknown tool: 'nope'")
        r = await env.step(CallToolAction(tool_name="guess", arguments={"digit": 9}))
        assert r.observation.result["data"] == "right" and r.reward == 1 and r.done, r
        r = await env.reset(seed=2, low=9)
        r = await env.step(CallToolAction(tool_name="nope"))
        assert r.observation.error.error_type.value == "tool_not_found", r


async def full():
    async with GenericEnvClient(base_url=URL, headers=HEADERS) as env:
        await env.reset(seed=1)
        other = GenericEnvClient(base_url=URL, headers=HEADERS)
        await other.connect()
        await fails(other.reset(), "CAPACITY_REACHED")
        await other.close()
    async with GenericEnvClient(base_url=URL, headers=HEADERS) as env:
        await env.reset(seed=1)


async def webshop():
    """Ten goals: search for the instruction's words, open the first product, choose what the instruction names, and buy."""
    rewards = []
    async with GenericEnvClient(base_url=URL, headers=HEADERS) as env:
        for seed in range(10):
            r = await env.reset(seed=seed)
            goal = re.search(r"Instruction: (.*)", r.observation["text"]).group(1)
            r = await env.step({"action": f"search[{goal.split(' with ')[0]}]"})
            first = re.search(r"\[(B\d+)\]", r.observation["text"]).group(1)
            r = await env.step({"action": f"click[{first}]"})
            assert first in r.observation["text"] and not r.done, r
            for line in r.observation["text"].split("\n")[3:-1]:
                for option in re.findall(r"\[(.*?)\]", line):
                    if f": {option}," in goal:
                        r = await env.step({"action": f"click[{option}]"})
                        assert f"(chosen: {option})" in r.observation["text"], r
            r = await env.step({"action": "click[Buy Now]"})
            assert r.done and f"You bought {first}. Your score is {r.reward:.2f} of 1." in r.observation["text"], r
            rewards.append(r.reward)
    assert max(rewards) > 0.3 and min(rewards) < max(rewards), rewards
    print("rewards", " ".join(f"{x:.2f}" for x in rewards))


def validate():
    import json

    from openenv.cli._validation import validate_running_environment

    report = validate_running_environment(URL)
    assert report["passed"], json.dumps(report, indent=1)


if WHAT == "validate":
    validate()
else:
    asyncio.run({"texts": texts, "tools": tools, "full": full, "webshop": webshop}[WHAT]())
print("passed")
