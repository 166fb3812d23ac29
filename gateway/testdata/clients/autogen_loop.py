"""An agent of AutoGen: autogen_loop.py plain|stream."""
import asyncio
import os
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient


def calculator(a: float, b: float) -> int:
    """Multiplies."""
    return int(a * b)


async def main():
    info = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=False)
    client = OpenAIChatCompletionClient(model="policy", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], model_info=info)
    agent = AssistantAgent("calc", client, tools=[calculator], system_message="You calculate.", max_tool_iterations=5, model_client_stream=sys.argv[1] == "stream")
    r = await agent.run(task="What is 17*23?")
    print("FINAL", r.messages[-1].content)
    await client.close()


asyncio.run(main())
