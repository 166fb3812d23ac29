# Classes of exceptions with an __init__ and attributes, classes that are iterators, truth values in math, and sums of tuples.
import math
from typing import Any

from agentfly import tool


class Own(Exception):
    def __init__(self, code, text="no"):
        Exception.__init__(self, text)
        self.code = code

    def twice(self):
        return self.code * 2


class Sub(Own):
    pass


class Pair(ValueError):
    def __init__(self, a=1, b=2):
        self.a = a
        self.b = b


class Named(Exception):
    def __str__(self):
        return "named %d" % len(self.args)


class Count:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        self.i = 0
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i


class Slow(Count):
    pass


class Breaks(Count):
    def __next__(self):
        if self.i >= self.n:
            raise ValueError("broken")
        self.i += 1
        return self.i


@tool()
def caught() -> Any:
    out = []
    for make in [lambda: Own(7), lambda: Own(code=8, text="why"), lambda: Sub(9, "sub")]:
        try:
            raise make()
        except Own as e:
            out.append([e.code, str(e), e.args, e.twice(), type(e).__name__, repr(e)])
    return out


@tool()
def classes() -> Any:
    out = []
    try:
        raise Pair
    except ValueError as e:
        out.append([e.a, e.b, e.args, str(e), repr(e)])
    try:
        raise Pair from KeyError("k")
    except Pair as e:
        out.append([e.a, isinstance(e, ValueError)])
    try:
        raise Own
    except TypeError:
        out.append("TypeError")
    try:
        Own()
    except TypeError:
        out.append("TypeError")
    return out


@tool()
def attributes() -> Any:
    e = ValueError("x", 1)
    e.more = 3
    e.args = e.args + (4,)
    out = [e.more, e.args, hasattr(e, "more"), hasattr(e, "less"), getattr(e, "less", None), getattr(e, "more"), str(e)]
    setattr(e, "less", 5)
    try:
        return out + [e.less, e.nothing]
    except AttributeError as e:
        return out + [str(e)]


@tool()
def texts() -> Any:
    return [str(Named()), str(Named("a")), "%s" % Named(1, 2), "{}".format(Named()), repr(Named("a")), repr(ValueError()), str(ValueError()), repr(KeyError("k")), str(KeyError("k"))]


@tool()
def left():
    raise Own(1, "left")


@tool()
def named():
    raise Named(1)


@tool()
def iterators() -> Any:
    a, b = Count(2)
    return [
        list(Count(3)), tuple(Slow(3)), sum(Count(3)), sorted(Slow(3)), max(Count(3)), list(enumerate(Count(2))), list(zip(Count(2), Slow(2))), 2 in Count(3), len(set(Count(3))),
        a, b, next(iter(Slow(1))), next(iter(Count(0)), "end"), ",".join(str(x) for x in Count(2)), list(map(str, Count(2))), [x for x in Slow(2)],
    ]


@tool()
def ends() -> Any:
    it = iter(Count(2))
    out = []
    while True:
        try:
            out.append(next(it))
        except StopIteration:
            return out + [it.i, it.n]


@tool()
def breaks():
    for x in Breaks(2):
        pass
    return "went on"


@tool()
def breaks_in_a_list():
    return list(Breaks(2))


@tool()
def truths() -> Any:
    return [math.sqrt(True), math.floor(True), math.pow(True, 2), math.log(True), math.isnan(False), math.hypot(True, 0), math.ceil(False), math.factorial(True), math.atan2(True, True), math.exp(False), math.gcd(True, 2)]


@tool()
def tuples() -> Any:
    t = (1, 2) + (3,)
    t += ()
    return [t, () + t, (0,) + t]


@tool()
def specials() -> Any:
    e, own, none = KeyError("k"), Named("a"), ValueError()
    out = [e.__class__ is KeyError, own.__class__.__name__, own.__class__ is type(own), getattr(e, "__class__").__name__, type(e).__name__, isinstance(e, e.__class__)]
    out += [e.__str__(), e.__repr__(), own.__str__(), own.__repr__(), none.__str__(), none.__repr__(), e.__cause__]
    out += [hasattr(e, n) for n in ["__class__", "__dict__", "__cause__", "__str__", "__nothing__"]]
    own.more = 1
    out += [own.__dict__, (1).__class__.__name__, "a".__class__ is str, Count(1).__class__.__name__, Count(1).__class__ is Count]
    try:
        raise own from e
    except Named as caught:
        out.append(caught.__cause__ is e)
    return out


class Told(Exception):
    """Has a text of its own."""


class Untold(Told):
    pass


@tool()
def raised_from() -> Any:
    big, e = 10 ** 30, KeyError("k")
    out = [type(big).__name__, big.__class__.__name__, type(big) is int, type(big) is type(1), isinstance(big, int)]
    out += [ValueError("x").__doc__, Told().__doc__, Untold().__doc__, Told.__doc__]
    out += [e.__cause__, e.__suppress_context__, e.__traceback__, hasattr(e, "__suppress_context__")]
    for cause in [e, None, KeyError]:
        try:
            raise ValueError("v") from cause
        except ValueError as v:
            out += [v.__cause__ is cause, repr(v.__cause__), v.__suppress_context__]
    try:
        raise Told from e
    except Told as v:
        out += [v.__cause__ is e, v.__suppress_context__]
    try:
        raise Told("bare")
    except Told as v:
        out += [v.__cause__, v.__suppress_context__]
        v.__cause__ = e
        out += [v.__cause__ is e, v.__suppress_context__, v.__dict__]
        v.__suppress_context__ = False
        out += [v.__suppress_context__]
    try:
        raise Told from 3
    except TypeError as v:
        out += [str(v)]
    try:
        raise 3 from e
    except TypeError as v:
        out += [str(v)]
    for wrong in ["text", int]:
        try:
            raise wrong
        except TypeError as v:
            out += [str(v)]
    try:
        e.__cause__ = 3
    except TypeError as v:
        out += [str(v)]
    return out
