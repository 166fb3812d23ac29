"""An agent of openai-agents: agents_loop.py responses|responsesstream|chat|chatstream."""
import asyncio
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api

mode = sys.argv[1]
if mode.startswith("chat"):
    set_default_openai_api("chat_completions")


@function_tool
def calculator(a: float, b: float) -> int:
    """Multiplies."""
    return int(a * b)


agent = Agent(name="calc", instructions="You calculate.", tools=[calculator], model="policy")


async def main():
    if mode.endswith("stream"):
        r = Runner.run_streamed(agent, "What is 17*23?")
        async for _ in r.stream_events():
            pass
    else:
        r = await Runner.run(agent, "What is 17*23?")
    print("FINAL", r.final_output)


asyncio.run(main())
