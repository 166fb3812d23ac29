from agentfly import tool


@tool(timeout=0)
def f(x: str):
    return x
