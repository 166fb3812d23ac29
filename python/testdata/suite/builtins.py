# What gpython lacks or does wrongly by itself, and the runtime adds.
import math
import string
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

from agentfly import reward, tool


class Wrong(ValueError):
    pass


class Deeper(Wrong):
    pass


class Counter:
    """Counts."""

    step = 2

    def __init__(self, start=0, *, by: int = 1):
        self.n = start
        self.by = by

    def next(self) -> int:
        self.n += self.by * self.step
        return self.n


class Box(Counter):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def __contains__(self, x):
        return x in self.items

    def __iter__(self):
        return iter(self.items)

    def __str__(self):
        return "box of %d" % len(self)


class Chest(Box):
    pass


class Flag:
    def __init__(self, up):
        self.up = up

    def __bool__(self):
        return self.up


class Lowered(Flag):
    pass


@tool()
def strings(s: str = "Hello World"):
    return [
        s.upper(), s.lower(), s.title(), s.capitalize(), s.count("o"), s.index("W"), s.find("z"), s.rfind("o"), s.partition(" "),
        s.rpartition("o"), s.split(), s.split("o", 1), s.replace("l", "L"), s.strip("Hd"), s.startswith("He"), s.endswith("x"),
        s.ljust(14, "."), s.rjust(14), s.center(15, "*"), "-7".zfill(5), "a\nb\r\nc\n".splitlines(), "12".isdigit(), "a1".isalnum(),
        "ab".isalpha(), "AB".isupper(), "ab1".islower(), " ".isspace(), "".isdigit(), ", ".join(["a", "b"]), s[::-1], s[-3:],
        "naïve ✓".upper(), "naïve ✓".index("v"), len("naïve ✓"), "x" * 3, "ell" in s, s < "I", string.digits,
    ]


@tool()
def percents():
    n, half = 7, 0.5
    return [
        "%s %s %s %s" % (1, 2.0, None, True), "%s" % "x", "%s" % [1, "a", 2.5], "%d%%" % 50, "%5d|%-5d|%05d|%+d" % (n, n, n, n),
        "%.2f %8.3f %e %g %g" % (half, 3.14159, 12345.678, 0.0001, 1e20), "%x %X %o %#x" % (255, 255, 8, 255), "%r %r" % ("it's", 'a"b'),
        "%(a)s-%(b)d" % {"a": "x", "b": 2}, "%5s|%-5s|%.2s" % ("ab", "ab", "abcdef"), "%c" % "z", "%d" % 3.99, n % 3, -n % 3, 7.5 % 2,
        2 * n % 4, n % 4 * 2, "%s" % (1,), "100%",
    ]


@tool()
def braces():
    return [
        "{} {}".format(1, "a"), "{1}{0}".format("a", "b"), "{x}-{y:d}".format(x="q", y=3), "{:.2f}|{:8.3f}|{:<6}|{:>6}|{:^6}".format(1.005, 2.5, "a", "b", "c"),
        "{:05d} {:+d} {:,} {:x} {:b} {:%}".format(42, 5, 1234567, 255, 5, 0.25), "{{}} {!r}".format("s"), "{:*^9}".format("mid"), "{} {} {}".format(None, True, 1.0),
        "{:,.2f}".format(1234567.891), "{:>8}|{:<8}|{:e}".format(3, 2.5, 12.5),
    ]


@tool()
def numbers():
    return [
        round(2.567, 1), round(2.5), round(3.5), round(-2.5), round(2.675, 2), round(1234.5, -2), round(7), round(1e15 + 0.3, 1), 10 ** 30 + 1, 2 ** 0.5, 7 // 2, -7 // 2,
        1e20, 1e-7, 0.1 + 0.2, abs(-3), divmod(7, 2), max([3, 1]), min(3, 1), sum([1, 2.5]), int("42"), int(-2.7), float("1e3"), bool([]), bool("x"), bool(0.0),
        math.sqrt(16), math.floor(2.7), math.pi, 3 / 2, 6 / 3, isinstance(1, int), isinstance("a", (int, str)), isinstance(True, int), type(1.5).__name__, type("a").__name__, 1 < 2 < 3,
    ]


@tool()
def truths(a: int = 2, b: int = 2):
    yes, no = a == b, a != b
    n = no
    n += yes
    return [
        float(yes), int(no), float(yes and no), (yes + yes) / 2, yes / 2, yes - no, yes & no, yes | no, yes ^ yes, yes & 1, yes > no, yes >= yes, no < yes, yes <= no, -yes, +no, ~yes,
        yes + yes, yes * 0.5, yes * yes, yes // yes, yes / yes, yes ** 2, 2 ** yes, yes << yes, yes >> no, yes % 2, n, abs(yes), divmod(yes, 2), pow(yes, 2), sum([yes, no, yes]), max(yes, no),
        sorted([yes, no, yes]), "%.1f %d" % (yes, yes), "{:.1f} {:d}".format(yes, no), [a, b][yes], min([yes, no], key=lambda x: -x), yes == 1, 1.0 == yes, yes is True,
    ]


@tool()
def methods():
    a, b, c = {1, 2, 3}, {2, 3, 4}, set("ab")
    c.update(["c"], "d")
    c.discard("a")
    c.discard("z")
    c.remove("b")
    d = a.copy()
    d.add(9)
    e = a.copy()
    e.clear()
    frozen = frozenset([1, 2, 2])
    return [
        "a b c d".rsplit(" ", 1), "a,b,c".rsplit(","), " a  b c ".rsplit(), " a  b c ".rsplit(None, 1), "aBc É".swapcase(), "abcab".rindex("ab"),
        sorted(a.union(b, [7])), sorted(a.intersection(b)), sorted(a.difference([1])), sorted(a.symmetric_difference(b)), a.issubset([1, 2, 3, 4]), a.issubset(b),
        a.issuperset({1}), a.isdisjoint([8]), sorted(c), len(a), sorted(d), list(e), sorted(frozen), len(frozen), 2 in frozen, len(frozenset()), sorted(frozen.union([5])), {7}.pop(), a <= a, a < b,
        a >= {1}, a > {1, 2}, isinstance(frozen, frozenset), [1, 2] < [1, 3], (1, "b") > (1, "a"), [1] <= [1, 0], (2,) >= (2,), [[1]] < [[2]], math.gcd(12, 18), math.gcd(-4, 0),
        math.isclose(0.1 + 0.2, 0.3), math.isclose(1, 1.1, rel_tol=0.2), math.isclose(0, 1e-9, abs_tol=1e-6), math.tau, (1, 2, 1).index(2), (1, 2, 1).count(1),
    ]


@tool()
def exact():
    seen = {2.0}
    seen.add(2)
    return [
        round(25, -1), round(35, -1), round(-25, -1), round(26, -1), round(149, -2), round(4, -1), round(5 * 10 ** 30, -31), "ab".center(5, "*"), "ab".center(4, "*"), "abc".center(6), "abc".center(5),
        "\n".splitlines(), "".splitlines(), "\n\n".splitlines(), "a\n\nb".splitlines(), len(set([1, 1.0, True])), len({2, 2.0}), len({x for x in [1, 1.0, 2 ** 70, 2 ** 70]}), len(seen),
        len({1, 2} | {1.0}), {1, 2} == {1.0, 2.0}, 1.0 in {1}, sorted({0.5, 1}), "{:.2} {:.2} {:.3} {:.1}".format(3.0, 33.0, 1.25, 0.5), "{:.4} {:.3}".format(100.0, 1e-7),
        9007199254740993 == 9007199254740992.0, 9007199254740993 > 9007199254740992.0, 9007199254740992.0 != 9007199254740993, 2 ** 70 == 2.0 ** 70, 2 ** 70 < float("inf"), 3 == 3.0,
        float("nan") == 2 ** 70, str(KeyError("k")), "%s" % KeyError("k"), str(KeyError("k", 1)), str(ValueError("k")), str({3}), str(set()), repr(frozenset([1])), str(frozenset()), 3.0.is_integer(), 2.5.is_integer(),
    ]


@tool()
def containers():
    a = [3, 1, 2]
    a.insert(1, 9)
    a.insert(-1, 8)
    a.append(1)
    a.remove(9)
    last = a.pop()
    first = a.pop(0)
    b = a.copy()
    b.reverse()
    d = {"x": 1}
    d.update({"y": 2})
    e = d.copy()
    gone = e.pop("x")
    missing = e.pop("q", None)
    return {
        "a": a, "b": b, "last": last, "first": first, "index": a.index(8), "count": a.count(1), "d": d, "e": e, "gone": gone, "missing": missing,
        "default": d.setdefault("z", []), "get": d.get("nothing"), "keys": sorted(d.keys()), "in": "x" in d, "sorted": sorted([[2, "b"], [1, "a"]], key=lambda p: p[0]),
        "reversed": list(reversed([1, 2, 3])), "squares": [x * x for x in range(5) if x % 2], "dict": {k: len(k) for k in ["a", "bb"]}, "set": sorted({1, 2, 2}),
        "zip": list(zip([1, 2], "ab")), "enumerate": list(enumerate("ab")), "slice": a[1:], "nested": [y for x in [[1], [2, 3]] for y in x], "any": any([0, 1]), "all": all([]),
    }


@tool()
def classes(start: int):
    c = Counter(start, by=3)
    c.next()
    return [c.next(), Counter().next(), Counter.step]


@tool()
def derived():
    full, empty, up, down = Chest(3, 4), Chest(), Flag(True), Lowered(False)
    return [
        isinstance(full, Box), isinstance(full, Counter), isinstance(full, object), isinstance(Box(), Chest), isinstance(full, (int, (str, Counter))), isinstance(Deeper("x"), Exception),
        isinstance(Deeper("x"), (KeyError, ValueError)), isinstance(ValueError("x"), Wrong), isinstance(Box, type), isinstance(3, Box), len(full), full[1], 3 in full, list(full), str(full),
        [1 if x else 0 for x in [full, empty, up, down, Box, Flag]], not empty, not up, bool(down), bool(full), type(empty or up).__name__, type(empty and up).__name__,
        type(full or up).__name__, any([down, empty]), all([up, full]), [x.up for x in [up, down] if x], "yes" if down else "no", empty is empty, empty == empty, empty != Chest(),
    ]


@tool()
def exceptions(kind: Literal["wrong", "deeper", "value", "finally", "none"]):
    seen = []
    try:
        if kind == "wrong":
            raise Wrong("w")
        if kind == "deeper":
            raise Deeper("d")
        if kind == "value":
            int("x")
        seen.append("no error")
    except Deeper as e:
        seen.append("deeper " + str(e))
    except Wrong as e:
        seen.append("wrong %s" % e)
    except (ValueError, KeyError) as e:
        seen.append(str(e))
    finally:
        seen.append("finally")
    return seen


@tool()
def caught():
    seen = []
    for kind, classes in [
        (Wrong, Exception), (Wrong, ValueError), (Deeper, Wrong), (Deeper, ValueError), (Deeper, (KeyError, Exception)), (ValueError, Exception), (Deeper, BaseException),
        (Wrong, Deeper), (ValueError, Wrong), (Deeper, KeyError),
    ]:
        try:
            try:
                raise kind("x")
            except classes as e:
                seen.append([kind.__name__, type(e).__name__, str(e)])
        except Exception as e:
            seen.append("not caught " + str(e))
    return seen


@tool()
def raises(kind: str):
    if kind == "deeper":
        raise Deeper("not", "today")
    if kind == "empty":
        raise Wrong
    if kind == "called":
        raise Wrong()
    if kind == "assert":
        assert kind == "x", "it is %s" % kind
    if kind == "format":
        return "%q" % 1
    if kind == "few":
        return "%s %s" % "x"
    if kind == "many":
        return "%s" % (1, 2)
    if kind == "name":
        return undefined  # noqa: F821
    if kind == "join":
        return ", ".join([1])
    if kind == "split":
        return "abc".split("")
    if kind == "code":
        return "{:d}".format(3.0)
    if kind == "text":
        return "{:d}".format("3")
    if kind == "unhashable":
        return {1, kind, [2]}
    if kind == "pop":
        return {}.pop("k")
    return kind + 1


@tool()
def typed(
    a: List[float], b: Optional[int] = None, c: Union[int, str] = 3, d: Dict[str, float] = {}, e: Tuple[int, ...] = (), f: Any = None, g: Optional[List[str]] = None,
    h: Literal[1, "x"] = 1, *, i: float = 1
):
    """Types.

    Args:
        a: Numbers.
        g: Names.
    """
    return [[type(x).__name__ for x in a], b, type(c).__name__, [type(d[k]).__name__ for k in sorted(d)], type(e).__name__, f, g, h, type(i).__name__]


@tool()
def big(n: int):
    return [str(n + 1), str(n * n), str(-n), "%d" % n, isinstance(n, int)]


@tool()
def inner(a: List[int], b: int, *, c: int = 2):
    """Arguments in inner functions."""
    d = b

    def add(x, y=1):
        nonlocal d
        d += 1
        total = x + y + b
        for z in a:
            total += z
        return total

    a = a + [c]
    return [[x * b * c for x in a], add(1), (lambda x: x + b)(1), d, sum(x * b for x in a), sorted(a, key=lambda x: -x * c)]


@tool()
def ordered():
    rows = [(2, "b"), (1, "z"), (1, "a")]
    rows.sort(key=lambda r: r[0], reverse=True)
    return [rows, sorted(rows), max(rows), min([[2, 1], [2, 0]]), min([], default=4), max("ab", "b", key=len), sorted({"b": 1, "a": 2}.items()), sorted("cab", reverse=True)]


@tool()
def floats():
    some = [0.3, 0.1, 0.2]
    return [
        0.1 < 0.2, 0.5 <= 0.5, 0.5 == 0.5, 0.5 != 0.5, 0.5 >= 0.25, 0.5 > 0.25, float("nan") == float("nan"), float("nan") != float("nan"), float("nan") < 1.0, max(0.1, 0.9),
        min(0.5, 0.25), sorted(some), some.index(0.2), 0.2 in some, (0.1, 1) < (0.1, 2), [0.5] == [0.5], 1.0 if abs(float("391.0") - float("391")) < 0.01 else 0.0,
    ]


@tool()
def in_place():
    a, b, c, d = {1}, {1, 2}, {1, 2}, {1, 2}
    same = [a, b, c, d]
    a |= {2}
    b &= {2}
    c -= {1}
    d ^= {2, 3}
    row = [3, 1]
    rows = [row]
    row *= 2
    row += [5]
    row += (6,)
    frozen = frozenset([1])
    other = frozen
    frozen |= {2}
    return [[sorted(s) for s in same], [sorted(s) for s in [a, b, c, d]], rows, row, len(other), len(frozen)]


@tool()
def texts():
    return [
        str(1e16), str(123456789.123), str((1,)), str([1e22, 0.1, {"k": 1e-5}]), repr("it's"), "%s %s" % (1234567.5, (1,)), "{}".format(100000000.25), str(float("inf")),
        str(-1e-7), str(1e15), str(""), str(None), repr(12345678.9), str(Wrong("w")), repr(Wrong),
    ][:13]


@tool()
def chosen(n: Literal[1, 2, True], m: Optional[Literal[3, "x"]] = None):
    return [repr(n), repr(m)]


@reward()
def scored(final_response, weight=0.5, **fields):
    return {"reward": weight * len(final_response), "fields": len(fields)}


def test_strings():
    assert strings("a") != [], "never"


def test_fails():
    assert "%s" % 1 == "2", "said %d" % 1


@tool()
def pairs():
    d = dict({"a": 1}, b=2)
    e = dict(d)
    e["c"] = 3
    d.update(zip("xy", [1, 2]))
    d.update([["z", 3]], w=4)
    d.update(v=5)
    d.update(e)
    d.update()
    out = [dict(zip(["a", "b"], [1, 2])), dict([("a", 1)]), dict((("a", 1), ["b", 2])), dict(["ab", "cd"]), dict((k, 1) for k in "ab"), dict(e.items()), dict(), dict(k=1)]
    out += [sorted(d.items()), sorted(e.items())]
    for wrong in [[("a", 1, 2)], [()], [1], 1]:
        try:
            out.append(dict(wrong))
        except (TypeError, ValueError) as x:
            out.append(type(x).__name__)
    return out


@tool()
def sums():
    out = [sum([(1,), (2, 3)], ()), sum(((i,) for i in range(3)), (9,)), sum([], (1,)), sum([[1], [2, 3]], []), sum([1, 2.5]), sum([True, True]), sum([1, 2], 3), sum(x > 1 for x in [1, 2, 3]), sum([1], True)]
    for wrong in [lambda: sum([(1,)]), lambda: sum([1], ()), lambda: sum(["a"], ""), lambda: sum(1)]:
        try:
            out.append(wrong())
        except TypeError:
            out.append("TypeError")
    return out


@tool()
def same():
    a, b = ValueError("a"), ValueError("a")
    x, y = Wrong("w"), Wrong("w")
    f = lambda: 1
    g = lambda: 1
    out = [a == a, a != a, a == b, a != b, x == x, x == y, x != y, a == x, a == 1, a != None, 1 == a, f == f, f == g, f != g, len == len, len == max]
    out += [a in [a], a in [b], a not in (b, a), [b, a].index(a), [a, b, a].count(a), f in [g], f in (g, f), [a] == [a], [a] == [b], (a,) != (b,), [(f,)] == [(f,)]]
    return out
