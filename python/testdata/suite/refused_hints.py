from dataclasses import dataclass
from typing import Callable, Dict, Optional

from agentfly import agent, reward, tool


@dataclass
class Node:
    next: "Optional[Node]" = None


@tool()
def rest(*values):
    return values


@tool()
def called(f: Callable):
    return f


@tool()
def nested(table: Dict[int, str]):
    return table


@tool()
def recursive(node: Node):
    return node


@tool()
def unresolved(x: "Missing"):
    return x


@tool(environment="scienceworld")
def acts(x: str):
    return x


@tool()
def fine(x: str):
    return x


@tool(name="fine")
def again(x: str):
    return x


@tool(name="not a name")
def spaced(x: str):
    return x


@reward()
def lenient(final_response: Callable):
    return 1


@agent()
def read(completion):
    return completion


@tool()
class Tool:
    pass


@reward()
async def streams(final_response):
    yield 1
