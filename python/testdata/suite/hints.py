from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

from agentfly import tool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A point of the plane.

    Attributes:
        x: To the right.
    """

    x: float
    y: float = 0.0


@dataclass
class Shape:
    corners: List[Point]
    colour: Colour = Colour.RED
    tags: Dict[str, int] = field(default_factory=dict)


@tool()
def draw(shape: Shape, mode: Literal["fill", "line"] = "fill", scale: Optional[int] = None):
    """Draw.

    Args:
        shape: What to draw.
        scale: How large.
    """
    assert isinstance(shape, Shape) and all(isinstance(p, Point) for p in shape.corners)
    return "%s %s %s %s %s" % (len(shape.corners), shape.colour.name, mode, scale, sum(p.x + p.y for p in shape.corners))


@tool()
def union(value: Union[int, str], point: Union[Point, List[int], None] = None, anything: Any = None):
    return "%s %s" % (type(value).__name__, type(point).__name__)


@tool()
def containers(a: Tuple[int, ...], b: Dict[str, List[float]], c: list, d: Literal[1, 2, "x"] = 1):
    return "%s %s %s %s" % (type(a).__name__, b, c, d)


@tool()
def number(n: int, x: float):
    return "%r %r" % (n, x)
