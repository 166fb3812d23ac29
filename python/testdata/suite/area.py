from agentfly import tool

UNIT = "m"


@tool()
def area(width: float, height: float = 2.0, unit: str = "m", round_to: int = 1, squared: bool = True) -> str:
    """Area of a rectangle.

    Both sides are in the same unit.

    Args:
        width: Width, which may
            be zero.
        height (float): Height.
        unit: Name of the unit.

    Returns:
        The area as text.
    """
    return "%s %s%s" % (round(width * height, round_to), unit, "2" if squared else "")


@tool
def bare(text):
    "One line"
    return text


@tool()
def nothing():
    return "done"


def helper(width):
    return area(width, 3.0)


@tool(name="twice-as-wide", description="What the decorator says.")
def twice(width: float):
    """What the docstring says."""
    return helper(2 * width)


def test_area():
    assert area(1.5) == "3.0 m2"


def test_wrong():
    assert area(1.0) == "9 m2"
