"""A ToolCallingAgent of smolagents: smolagents_loop.py plain|stream."""
import os
import sys

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def calculator(a: float, b: float) -> int:
    """Multiplies.

    Args:
        a: first
        b: second
    """
    return int(a * b)


model = OpenAIServerModel(model_id="policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = ToolCallingAgent(tools=[calculator], model=model, max_steps=5, verbosity_level=0, stream_outputs=sys.argv[1] == "stream")
print("FINAL", agent.run("What is 17*23?"))
