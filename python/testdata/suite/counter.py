from agentfly import reward, state, tool


@tool(stateful=True)
def count(by: int = 1):
    """Count on.

    Args:
        by: How far.
    """
    state()["n"] = state().get("n", 0) + by
    return str(state()["n"])


@tool(stateful=True)
def current():
    return str(state().get("n", 0))


@reward(stateful=True)
def counted():
    return state().get("n", 0)


@tool()
def careless():
    return state()
