from agentfly import tool


@tool()
def numbers(x: int, **rest: int) -> str:
    return repr((x, sorted(rest.items())))


@tool()
def anything(x: int, **rest) -> str:
    return repr((x, sorted(rest.items())))
