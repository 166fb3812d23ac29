from agentfly import tool


@tool()
def broken(x):
    return x = = 1
