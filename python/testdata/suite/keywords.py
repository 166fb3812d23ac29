from dataclasses import dataclass
from typing import Any

from agentfly import tool


@dataclass
class Point:
    """A point.

    Attributes:
        x: To the right.
    """

    x: int


@tool()
def numbers(x: int, **rest: int) -> str:
    """Adds up.

    Args:
        rest: Further numbers.
    """
    return repr((x, rest))


@tool()
def points(**points: Point) -> str:
    return repr(sorted(points.items()))


@tool()
def anything(**rest: Any) -> str:
    return repr(rest)


@tool()
def unhinted(x: int, **rest) -> dict:
    return {"observation": repr((x, rest))}
