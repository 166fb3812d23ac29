from agentfly import tool


class Refused(Exception):
    pass


@tool()
def value(n: int):
    if n < 0:
        raise ValueError("n is negative: %d" % n)
    return n


@tool()
def key():
    return {}["missing"]


@tool()
def zero():
    return 1 / 0


@tool()
def own():
    raise Refused("not today")


@tool()
def lines():
    raise ValueError("first\nsecond")


@tool()
def argument(a: int):
    return a


@tool()
def secret():
    raise ValueError("cannot open '/usr/lib/agentfly/secret.txt'")


@tool()
def named(path: str):
    raise ValueError("cannot open %s" % path)
