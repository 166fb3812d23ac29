# The shape of files for AgentFly's Python library: places of import, options, context, async, dict returns.
import traceback

from agentfly.core import Context
from agentfly.tools import tool


@tool(name="adder", description="Adds two numbers.", status="success", max_length=2048, auto_register=True)
def add(a, b: int = 1):
    """
    Adds two numbers.

    Args:
        a (int): The first number.
        b (int): The second number which should be a non-negative integer.

    Returns:
        int: The sum of a and b.
    """
    return str(a + b)


@tool(name="code_interpreter", description="Run the code.", backend="local", pool_size=32)
async def code_interpreter(code: str, context: Context):
    """
    Run the code.

    Args:
        code: The code to run.
        context: Injected rollout context.
    """
    try:
        env = await context.acquire_resource(spec=None, scope="global", backend="local")
        return str(await env.step(code))
    except Exception as e:
        return f"Error: {str(e)}"


@tool(name="whoami", stateful=True, resource_spec={"kind": "none"}, backend="remote")
async def whoami(context: Context):
    """Name the rollout."""
    context.state["calls"] = context.state.get("calls", 0) + 1
    return {"observation": context.rollout_id, "image": None, "calls": context.state["calls"]}


@tool(name="answer", description="Give the final answer.", status="terminal")
def answer_tool(answer: str):
    try:
        return answer
    except Exception as e:
        return f"Error: {str(e)}\n{traceback.format_exc()}"
