"""An agent of pydantic-ai: pydantic_loop.py chat|responses|anthropic."""
import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

model = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel, "anthropic": AnthropicModel}[sys.argv[1]]("policy")
agent = Agent(model, instructions="You calculate.")


@agent.tool_plain
def calculator(a: float, b: float) -> int:
    """Multiplies."""
    return int(a * b)


async def main():
    print("FINAL", (await agent.run("What is 17*23?")).output)


asyncio.run(main())
