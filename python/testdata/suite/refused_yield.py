from agentfly import tool


@tool()
def counts(n: int):
    yield n
