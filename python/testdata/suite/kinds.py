from agentfly import tool


@tool()
def text():
    return "naïve — ✓ <b>"


@tool()
def whole():
    return 7


@tool()
def real():
    return 0.5


@tool()
def truth():
    return True


@tool()
def none():
    pass


@tool()
def many():
    return [1, "two", None, [3.5]]


@tool()
def mapping():
    return {"a": 1, "b": {"c": [True]}}


@tool()
def pair():
    return (1, 2)


@tool()
def observed():
    return {"observation": "seen", "image": "https://example.org/x.png", "score": 0.25, "raw": [1]}


@tool()
def collect(items: list, table: dict, more: str = None):
    return {"items": items, "table": table, "more": more}


@tool()
def not_a_number():
    return float("nan")
