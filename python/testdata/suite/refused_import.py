from agentfly import tool

import a_module_that_nobody_has


@tool()
def f(x: str):
    return x
