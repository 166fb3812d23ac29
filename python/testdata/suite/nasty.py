# What a function can raise, print and return; hints are strings.
from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Dict, List, Literal, Optional

from agentfly import tool


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Silent(AssertionError):
    def __str__(self):
        raise RuntimeError("no text")


@tool()
def chained():
    try:
        {}["inner"]
    except KeyError as e:
        raise ValueError("outer") from e


@tool()
def within():
    try:
        {}["inner"]
    except KeyError:
        raise ValueError("while handling")


@tool()
def syntax():
    compile("x = (\n1 +\n", "made.py", "exec")


@tool()
def mute(kind: Literal["Mute", "Silent"]):
    raise {"Mute": Mute, "Silent": Silent}[kind]()


@tool()
def noted():
    e = ValueError("wrong")
    e.__notes__ = ["try 3"]
    raise e


@tool()
def empty():
    raise ValueError


@tool()
def interrupt():
    raise KeyboardInterrupt


@tool()
def leave(how: str):
    sys.exit(how)


@tool()
async def leave_later():
    async def inner():
        sys.exit("from a task")

    await asyncio.ensure_future(inner())


@tool()
async def after():
    return "the loop goes on"


@tool()
def unpaired():
    return "\ud800 é \x00 \x1b[0m"


@tool()
def many():
    raise ValueError("x" * 5000)


@tool()
def deep():
    return deep()


@tool()
def circle():
    a = []
    a.append(a)
    return a


@tool()
def keys():
    return {(1, 2): 3}


@tool()
def without_output():
    sys.stdout = sys.stderr = None
    raise ValueError("nowhere to print")


@dataclass
class Point:
    x: int
    label: Optional[str] = None


@dataclass
class Path:
    points: List[Point]
    named: Dict[str, List[Point]]
    closed: bool = False


@tool()
def nested(path: Optional[Path] = None, table: Optional[Dict[str, List[Dict[str, int]]]] = None, size: Optional[Literal["s", "m"]] = "s"):
    """Walk.

    Args:
        path (Path, optional): Where to,
            over which points: all of them.
        table: Numbers
            by name.

        size (Optional[Literal["s", "m"]]): How far.

    Raises:
        ValueError: never.

    Returns:
        str: what was understood.
    """
    if path is None:
        return "no path, %s, %s" % (table, size)
    return "%s %s %s" % (type(path.points[0]).__name__, type(path.named["a"][0]).__name__, path.points[0].x)


@tool()
def untyped(n, names, flags, either):
    """Types stand in the docstring.

    Args:
        n (int): A number.
        names (List[str]): Names.
        flags (dict(str, bool), optional): Flags.
        either (int or str): Anything.
    """
    return "%r %r %r %r" % (n, names, flags, either)
