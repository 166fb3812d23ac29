"""What code_tests.py and code_answers.py have in common: the process of the tests and the process of the code call each other over pipes.

A message is a line of JSON. What crosses is plain data by value: a table of nodes, so that cycles and objects that occur twice stay what they
are, and what a call changes in its arguments is changed on both sides. Anything else crosses as a number, of which the other side makes a
Handle: an object whose uses are asked of the side that has it.
"""
import collections
import datetime
import decimal
import enum
import fractions
import functools
import json
import operator
import os
import pathlib
import re
import sys
import threading
import types
import uuid

BUILTIN = dict(vars(__import__("builtins")))
dumps, loads = json.JSONEncoder().encode, json.JSONDecoder().decode
ENDS = (StopIteration, StopAsyncIteration)
os.environ["TMPDIR"] = os.getcwd()  # temporary files lie where both processes see them: /tmp is each sandbox's own


class Refused(BaseException):
    """Something that does not cross. No test catches it with Exception."""


class Graph:
    """Values of one message: reference gives None, truth values, texts and usual numbers as they are, anything else as [number of a node]."""

    def __init__(self, peer):
        self.peer, self.numbers, self.kept, self.nodes, self.queue, self.next = peer, {}, {}, {}, [], 0

    def know(self, number, value):
        self.numbers.setdefault(id(value), number)
        self.kept[number] = value
        self.next = max(self.next, number + 1)

    def reference(self, value):
        kind = type(value)
        if value is None or kind is bool or kind is str or kind is int and abs(value) < 1 << 53 or kind is float and value - value == 0:
            return value
        number = self.numbers.get(id(value))
        if number is None:
            number = self.next
            self.know(number, value)
            self.queue.append((number, value))
        return [number]

    def message(self, **fields):
        while self.queue:
            number, value = self.queue.pop()
            self.nodes[number] = self.describe(value)
        return dict(fields, nodes=self.nodes)

    def describe(self, x):
        many = lambda values: [self.reference(v) for v in values]  # noqa: E731
        kind = type(x)
        if isinstance(x, Handle):
            return ["yours", number_of(x)]
        if id(x) in self.peer.stand:
            return ["yours", number_of(self.peer.stand[id(x)][1])]
        if isinstance(x, type):
            return self.describe_class(x)
        if kind is types.TracebackType:
            return ["constant", "None"]
        if kind in (list, collections.deque) or kind is set or kind is frozenset:
            return [kind.__name__, many(list(x)), x.maxlen if kind is collections.deque else None]
        if kind in VIEWS:
            return [VIEWS[kind], [many(pair) if VIEWS[kind] == "items" else self.reference(pair) for pair in x]]
        if kind in (dict, collections.OrderedDict, collections.Counter, collections.defaultdict):
            return [kind.__name__, [many(pair) for pair in dict.items(x)], many([getattr(x, "default_factory", None)])]
        if isinstance(x, types.ModuleType):
            return ["module", x.__name__]
        if isinstance(x, BaseException):
            state = {k: v for k, v in vars(x).items() if isinstance(k, str)}
            return ["exception", self.reference(kind), many(x.args), text_of(x), [[k, self.reference(v)] for k, v in state.items()]]
        if kind.__name__ in self.peer.shared and kind is self.peer.shared_class(kind.__name__):
            if isinstance(x, enum.Enum):
                return ["member", kind.__name__, x.name] if x.name in kind.__members__ else ["composite", kind.__name__, self.reference(x.value)]
            return ["object", kind.__name__, [[k, self.reference(v)] for k, v in attributes(x)]]
        if isinstance(x, enum.Enum):
            return self.peer.export_member(x) or self.describe_scalar(x) or self.peer.export(x)
        return self.describe_scalar(x) or self.peer.export(x)

    def describe_class(self, x):
        name = type.__dict__["__name__"].__get__(x)
        if BUILTIN.get(name) is x:
            return ["builtin", name]
        if name in self.peer.shared and x is self.peer.shared_class(name):
            return ["shared", name]
        if issubclass(x, BaseException):
            return ["error", self.peer.number(x), name, [self.reference(b) for b in x.__bases__ if issubclass(b, BaseException)]]
        return self.peer.export(x)

    def describe_scalar(self, x):
        """What never changes; of a class that derives from a plain one the plain value."""
        if isinstance(x, int):
            return ["int", format(int.__int__(x) + 0, "x")]
        if isinstance(x, float):
            return ["float", float.hex(x)]
        if isinstance(x, complex):
            return ["complex", float.hex(x.real), float.hex(x.imag)]
        if isinstance(x, str):
            return ["str", str.__str__(x)]
        if isinstance(x, tuple):
            fields = getattr(type(x), "_fields", None) if type(x) is not tuple else None
            return ["tuple", [self.reference(v) for v in tuple.__iter__(x)], list(fields) if isinstance(fields, tuple) else None, type(x).__name__, self.peer.export_tuple(x)]
        if isinstance(x, (bytes, bytearray)) and type(x) in (bytes, bytearray):
            return [type(x).__name__, x.decode("latin-1")]
        if isinstance(x, (range, slice)):
            return [type(x).__name__, [self.reference(v) for v in (x.start, x.stop, x.step)]]
        if x is Ellipsis or x is NotImplemented:
            return ["constant", repr(x)]
        name = {decimal.Decimal: "Decimal", uuid.UUID: "UUID"}.get(type(x)) or isinstance(x, pathlib.PurePath) and (
            "Path" if isinstance(x, pathlib.Path) else "PureWindowsPath" if isinstance(x, pathlib.PureWindowsPath) else "PurePosixPath"
        )
        if name:
            return [name, str(x)]
        if type(x) is fractions.Fraction:
            return ["Fraction", "%d/%d" % (x.numerator, x.denominator)]
        if type(x) in (datetime.date, datetime.datetime, datetime.time):
            return [type(x).__name__, x.isoformat()]
        if type(x) is datetime.timedelta:
            return ["timedelta", x.days, x.seconds, x.microseconds]
        if type(x) is re.Pattern and isinstance(x.pattern, str):
            return ["pattern", x.pattern, x.flags]
        if type(x).__module__ == "numpy" and hasattr(x, "tolist") and x.dtype.kind in "biufcU":
            if x.ndim == 0:
                return self.describe_scalar(x.item()) if not isinstance(x.item(), bool) else ["constant", repr(x.item())]
            return ["array", x.dtype.str, list(x.shape), [self.reference(v) for v in x.ravel().tolist()]]
        return None


CONSTANTS = {"None": None, "Ellipsis": Ellipsis, "NotImplemented": NotImplemented, "True": True, "False": False}
TEXTS = {
    "Decimal": decimal.Decimal, "UUID": uuid.UUID, "Fraction": fractions.Fraction,
    "Path": pathlib.Path, "PurePosixPath": pathlib.PurePosixPath, "PureWindowsPath": pathlib.PureWindowsPath,
}
VIEWS = {type(getattr(d(), name)()): name for d in (dict, collections.OrderedDict) for name in ("keys", "values", "items")}
NESTED = ("tuple", "frozenset", "keys", "values", "items")  # kinds of nodes that are made after what they hold
TIMES = {"date": datetime.date, "datetime": datetime.datetime, "time": datetime.time}
EMPTY = {
    "list": list, "set": set, "deque": collections.deque, "dict": dict, "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter, "defaultdict": collections.defaultdict, "bytearray": bytearray,
}


def text_of(x):
    try:
        return str.__str__(str(x))
    except Exception:
        return ""


def attributes(x):
    slots = [s for c in type(x).__mro__ for s in ([c.__dict__["__slots__"]] if isinstance(c.__dict__.get("__slots__"), str) else c.__dict__.get("__slots__", ()))]
    found = {s: getattr(x, s) for s in slots if s not in ("__dict__", "__weakref__") and hasattr(x, s)}
    found.update(getattr(x, "__dict__", {}))
    return [(k, v) for k, v in found.items() if isinstance(k, str)]


class Values:
    """Reads the nodes of a message. known has the objects of this side that the message speaks of, by number."""

    def __init__(self, peer, nodes, known):
        self.peer, self.nodes, self.known, self.made = peer, {int(k): v for k, v in nodes.items()}, known, {}

    def value(self, ref):
        if not isinstance(ref, list):
            return ref
        number = ref[0]
        if number in self.known:
            return self.known[number]
        if number not in self.made:
            node = self.nodes[number]
            if node[0] in EMPTY or node[0] == "object":
                self.made[number] = self.empty(node)
                self.fill(self.made[number], node)
            else:
                self.nest(number)
                self.made[number] = self.make(node)
        return self.made[number]

    def nest(self, number):
        """Makes the tuples within a tuple, the innermost first: no call lies within a call, so they may be as deep as the code likes."""
        waiting, seen = [number], set()
        while waiting:
            at = waiting[-1]
            missing = []
            if at not in seen and self.nodes[at][0] in NESTED:
                refs = [r for item in self.nodes[at][1] for r in (item if self.nodes[at][0] == "items" else [item])]
                missing = [r[0] for r in refs if isinstance(r, list) and r[0] not in self.made and r[0] not in self.known and self.nodes[r[0]][0] in NESTED]
            seen.add(at)
            if missing:
                if seen.intersection(missing):
                    raise Refused("a tuple within itself")
                waiting.extend(missing)
                continue
            waiting.pop()
            if at != number and at not in self.made:
                self.made[at] = self.make(self.nodes[at])

    def empty(self, node):
        if node[0] == "object":
            cls = self.peer.shared_class(node[1])
            return cls.__new__(cls)
        return collections.deque((), node[2]) if node[0] == "deque" else EMPTY[node[0]]()

    waiting = None

    def fill(self, target, node):
        """Gives an object its content, without depth: a list of lists of lists is as deep as the code likes."""
        if self.waiting is not None:
            self.waiting.append((target, node))
            return
        self.waiting = [(target, node)]
        try:
            while self.waiting:
                self.content(*self.waiting.pop())
        finally:
            self.waiting = None

    def content(self, target, node):
        kind = node[0]
        if kind == "object":
            fixed = type(target)
            for name, ref in node[2]:
                own = getattr(fixed, name, None)
                if name.startswith("__") or callable(own) and not isinstance(ref, (int, str)) or isinstance(own, property):
                    continue  # methods stay those of the class; __dict__ and __class__ would bring others
                object.__setattr__(target, name, self.value(ref))
            gone = set(getattr(target, "__dict__", {})) - {name for name, _ in node[2]}
            for name in gone:
                del target.__dict__[name]
        elif kind == "list":
            list.__setitem__(target, slice(None), [self.value(r) for r in node[1]])
        elif kind == "deque":
            target.clear()
            target.extend(self.value(r) for r in node[1])
        elif kind == "set":
            items = [self.value(r) for r in node[1]]
            target.clear()
            target.update(items)
        elif kind == "bytearray":
            target[:] = node[1].encode("latin-1")
        else:
            pairs = [(self.value(k), self.value(v)) for k, v in node[1]]
            dict.clear(target)
            for k, v in pairs:
                dict.__setitem__(target, k, v)
            if kind == "defaultdict":
                target.default_factory = self.value(node[2][0])

    def make(self, node):
        kind = node[0]
        if kind == "tuple":
            values = [self.value(r) for r in node[1]]
            if node[2] is not None:
                try:
                    return self.peer.named_tuple(node, values)
                except (TypeError, ValueError):
                    pass
            return tuple(values)
        if kind == "keys":
            return dict.fromkeys(self.value(r) for r in node[1]).keys()
        if kind == "values":
            return dict(enumerate(self.value(r) for r in node[1])).values()
        if kind == "items":
            return dict((self.value(k), self.value(v)) for k, v in node[1]).items()
        if kind == "member":
            return enum_class(self.peer.shared_class(node[1]))[node[2]]
        if kind == "composite":
            return enum_class(self.peer.shared_class(node[1]))(self.value(node[2]))
        if kind == "frozenset":
            return frozenset(self.value(r) for r in node[1])
        if kind == "int":
            return int(node[1], 16)
        if kind == "float":
            return float.fromhex(node[1])
        if kind == "complex":
            return complex(float.fromhex(node[1]), float.fromhex(node[2]))
        if kind == "str":
            return str(node[1])
        if kind == "bytes":
            return node[1].encode("latin-1")
        if kind in ("range", "slice"):
            return BUILTIN[kind](*[self.value(r) for r in node[1]])
        if kind == "constant":
            return CONSTANTS[node[1]]
        if kind in TEXTS:
            return TEXTS[kind](node[1])
        if kind in TIMES:
            return TIMES[kind].fromisoformat(node[1])
        if kind == "timedelta":
            return datetime.timedelta(*node[1:])
        if kind == "pattern":
            return re.compile(node[1], node[2])
        if kind == "array":
            import numpy

            dtype = numpy.dtype(node[1])
            if dtype.kind not in "biufcU":
                raise Refused("an array of objects does not cross")
            return numpy.array([self.value(r) for r in node[3]], dtype=dtype).reshape(node[2])
        if kind == "builtin":
            found = BUILTIN[node[1]]
            if isinstance(found, type):
                return found
        if kind == "shared":
            return self.peer.shared_class(node[1])
        if kind == "exception":
            return self.exception(node)
        if kind == "error":
            return self.peer.mirror(node[1], node[2], [self.value(r) for r in node[3]])
        if kind == "yours":
            return self.peer.exports[node[1]]
        return self.peer.foreign(node)

    def exception(self, node):
        cls, args = self.value(node[1]), [self.value(r) for r in node[2]]
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise Refused("an exception of no class of exceptions")
        try:
            e = cls(*args) if BUILTIN.get(cls.__name__) is cls else cls.__new__(cls, *args)
        except Exception:
            e = cls.__new__(cls)
        e.args = tuple(args)
        if BUILTIN.get(cls.__name__) is not cls:
            e.shown = str(node[3])
        for name, ref in node[4]:
            if not name.startswith("__") and not callable(getattr(cls, name, None)):
                try:
                    setattr(e, name, self.value(ref))
                except Exception:
                    pass
        return e


def enum_class(cls):
    if not issubclass(cls, enum.Enum):
        raise Refused("%s is no class of an enumeration" % cls.__name__)
    return cls


@functools.lru_cache(None)
def named(name, fields):
    return collections.namedtuple(name, fields)


# Handles.


def number_of(handle):
    return object.__getattribute__(handle, "_handle_number")


def asks(handle, *what):
    return object.__getattribute__(handle, "_handle_peer").ask(*what, of=handle)


class Handle:  # an object of the other side
    __doc__ = property(lambda self: self.__getattr__("__doc__"))
    __slots__ = ("_handle_peer", "_handle_number", "_handle_fed", "__weakref__")  # long names: the code's own objects have a _number too

    def __init__(self, peer, number):
        for name, value in (("_handle_peer", peer), ("_handle_number", number), ("_handle_fed", 0)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name):
        return asks(self, "getattr", self, name)

    def __setattr__(self, name, value):
        asks(self, "setattr", self, name, value)

    def __delattr__(self, name):
        asks(self, "delattr", self, name)

    def __iter__(self):
        return asks(self, "iter", self)

    def __aiter__(self):
        return asks(self, "method", self, "__aiter__", (), {})

    def __contains__(self, x):  # compared here: the other side would hear what is wanted
        return any(one is x or one == x for one in self)

    def __instancecheck__(self, x):
        return bool(asks(self, "isinstance", x, self))

    def __subclasscheck__(self, x):
        return bool(asks(self, "issubclass", x, self))

    def __mro_entries__(self, bases):
        object.__getattribute__(self, "_handle_peer").refuse("a class of the code cannot be a base of a class of the tests: they are in different processes")

    def __format__(self, spec):
        return asks(self, "format", self, spec)

    def __hash__(self):
        return asks(self, "hash", self)


class Callable(Handle):
    __doc__ = Handle.__dict__["__doc__"]  # a class without a text would have None
    __slots__ = ()

    def __call__(self, *args, **kwargs):
        return asks(self, "call", self, args, kwargs)


class Member:
    """A member of an enumeration of the code that derives from int or str, or a named tuple with methods: its value as plain data, which
    nothing said later changes; other attributes are asked of the code."""

    def __getattr__(self, name):
        if name.startswith(("__", "_handle")):
            raise AttributeError(name)
        if "_handle_of" not in vars(self):
            raise AttributeError(name)
        return getattr(self._handle_of, name)

    def __str__(self):
        return vars(self).get("_handle_text", [repr(self)])[0]

    def __repr__(self):
        return vars(self).get("_handle_text", [None, None])[1] or super().__repr__()


class IntMember(Member, int):
    pass


class StrMember(Member, str):
    pass


@functools.lru_cache(None)
def named_member(name, fields):
    return type(name, (Member, named(name, fields)), {})


UNARY = "neg pos invert abs".split()
BINARY = "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift divmod".split()
COMPARED = "eq ne lt le gt ge".split()


def special():
    def unary(op):
        return lambda self, *args: asks(self, "unary", op, self, *args)

    def binary(op, turned):
        def run(self, other, *rest):
            return asks(self, "binary", op, other, self) if turned else asks(self, "binary", op, self, other)

        return run

    for op in UNARY + "len bool str repr int float complex index round floor ceil trunc next reversed".split():
        setattr(Handle, "__%s__" % op, unary(op))
    for op in BINARY:
        setattr(Handle, "__%s__" % op, binary(op, False))
        setattr(Handle, "__r%s__" % op, binary(op, True))
        if op != "divmod":
            setattr(Handle, "__i%s__" % op, binary("i" + op, False))
    for op in COMPARED:
        setattr(Handle, "__%s__" % op, binary(op, False))
    def method(name):
        return lambda self, *args: asks(self, "method", self, name, args, {})

    def awaited(name):
        async def run(self, *args):
            return asks(self, "method", self, name, args, {})

        return run

    for name in "__getitem__ __setitem__ __delitem__ __enter__ __exit__".split():
        setattr(Handle, name, method(name))
    for name in "__aenter__ __aexit__ __anext__".split():
        setattr(Handle, name, awaited(name))


special()
OPERATORS = {op: getattr(operator, "__%s__" % op, None) for op in BINARY + COMPARED + ["i" + op for op in BINARY]}
OPERATORS["divmod"] = divmod
METHODS = {"floor": "__floor__", "ceil": "__ceil__", "trunc": "__trunc__"}


def run_unary(op, x, *args):
    if op in UNARY:
        return getattr(operator, "__%s__" % op)(x)
    if op == "index":
        return operator.index(x)
    if op in METHODS:
        return getattr(x, METHODS[op])()
    if op in ("len", "bool", "str", "repr", "int", "float", "complex", "round", "next", "reversed"):
        return BUILTIN[op](x, *args)
    raise Refused(op)


def run_coroutine(awaitable):
    """The end of something that can be awaited, whether a loop runs here or not."""
    import asyncio

    async def wait():
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    end = []

    def thread():
        try:
            end.append((True, asyncio.run(wait())))
        except BaseException as e:
            end.append((False, e))

    one = threading.Thread(target=thread)
    one.start()
    one.join()
    if not end[0][0]:
        raise end[0][1]
    return end[0][1]


class Peer:
    """One side of the pipes."""

    def __init__(self, lines, write):
        self.lines, self.send, self.lock = lines, write, threading.RLock()
        self.exports, self.exported, self.handles, self.mirrors, self.stand = {}, {}, {}, {}, {}
        self.shared, self.names, self.count = set(), {}, 0

    # What of this side the other one gets.

    def number(self, x):
        if id(x) not in self.exported:
            self.exported[id(x)] = len(self.exported)
            self.exports[self.exported[id(x)]] = x  # for good: its id must stay its own
        return self.exported[id(x)]

    def export(self, x):
        return ["mine", self.number(x), kind_of(x), getattr(x, "__name__", None) if callable(x) and isinstance(getattr(x, "__name__", None), str) else None]

    def export_member(self, x):
        """The node of a member of an enumeration that the other side does not have; None where its plain value will do."""

    def export_tuple(self, x):
        """The number and the texts of a named tuple that has more than its fields; None where its fields are all."""

    def named_tuple(self, node, values):
        fields = tuple(node[2])
        if node[4] is None:
            return named(node[3], fields)(*values)
        number, *text = node[4]
        made = named_member(node[3], fields)(*values)
        handle = self.foreign(["mine", number, "tuple of the code"])
        vars(made).update(_handle_of=handle, _handle_text=list(map(str, text)))
        self.stand[id(made)] = (made, handle)
        return made

    def refuse(self, what):
        raise Refused(what)

    def failed(self, e):
        """Told of an exception that the other side gets from here: a call of its ended so, or it is thrown into a generator of its."""

    def shared_class(self, name):
        if name not in self.shared or not isinstance(self.names.get(name), type):
            raise Refused("there is no class %s of both sides" % name)
        return self.names[name]

    # What of the other side this one gets.

    def foreign(self, node):
        if node[0] != "mine":
            raise Refused("a message of an unknown kind")
        number, kind = node[1], node[2]
        if number not in self.handles:
            self.handles[number] = self.make(kind, self.handle(number, kind), node)
        return self.handles[number]

    def handle(self, number, kind):
        return (Callable if kind in ("callable", "class") else Handle)(self, number)

    def make(self, kind, handle, node):
        if kind == "generator":

            def generator():
                sent = ("next", None)
                while True:
                    ended, value = self.ask("send", handle, *sent)
                    if ended:
                        return value
                    try:
                        sent = ("send", (yield value))
                    except GeneratorExit:
                        self.ask("send", handle, "close", None)
                        raise
                    except BaseException as e:
                        self.failed(e)
                        sent = ("throw", e)

            made = generator()
        elif kind == "coroutine":

            async def coroutine():
                return self.ask("await", handle)

            made = coroutine()
        elif kind in ("int", "str"):  # a member of an enumeration
            made = {"int": IntMember, "str": StrMember}[kind](int(node[3], 16) if kind == "int" else str(node[3]))
            vars(made).update(_handle_of=handle, _handle_text=(str(node[4]), str(node[5])), name=str(node[6]), value=made + type(made).__mro__[2]())
        else:
            return handle
        self.stand[id(made)] = (made, handle)  # on its way back it is the handle again
        return made

    def mirror(self, number, name, bases):
        """A class of exceptions of the other side."""
        if number not in self.mirrors:
            bases = tuple(b for b in bases if isinstance(b, type) and issubclass(b, BaseException)) or (Exception,)
            content = {"__str__": lambda self: self.shown, "shown": "", "__module__": "solution"}
            try:
                self.mirrors[number] = type(name, bases, content)
            except TypeError:
                self.mirrors[number] = type(name, (Exception,), content)
        return self.mirrors[number]

    # Calls.

    def ask(self, op, *args, of=None):
        with self.lock:
            graph = Graph(self)
            self.count += 1
            number = self.count
            self.send(self.packed(graph.message(id=number, op=op, v=[graph.reference(a) for a in args])))
            while True:
                m = self.read()
                if "op" in m:
                    self.serve(m)
                elif m.get("id") != number:
                    self.forged()
                else:
                    break
            return self.reply(m, graph, op == "unary" and args[0] == "next" or op == "method" and args[1] == "__anext__")

    def by_value(self, target, node):
        """Whether an object crossed as this kind of node, of which a call may change the content."""
        if node[0] == "object":
            return node[1] in self.shared and type(target) is self.shared_class(node[1])
        return node[0] in EMPTY and type(target) is EMPTY[node[0]]

    @staticmethod
    def run_send(generator, what, value):
        """One step of a generator: (False, what it yields) or (True, what it returns)."""
        try:
            if what == "next":
                return False, next(generator)
            if what == "close":
                return True, generator.close()
            if what in ("send", "throw"):
                return False, getattr(generator, what)(value)
        except StopIteration as e:
            return True, e.value
        raise Refused(what)

    def packed(self, message):
        return dumps(message)

    def read(self):
        line = self.lines.readline()
        if not line.endswith(b"\n"):
            self.gone()
        try:
            m = loads(line.decode())
            if not isinstance(m["nodes"], dict) or not isinstance(m["id"], int):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            self.forged()
        return m

    def reply(self, m, graph, steps):
        values = Values(self, m["nodes"], graph.kept)
        for number, node in m.get("changed", {}).items():
            target = graph.kept[int(number)]
            if not self.by_value(target, node):  # a function or an object of this side is not the other one's to write to
                self.forged()
            values.fill(target, node)
        if "raised" in m:
            raise self.crossed(values.value(m["raised"]), steps)
        return values.value(m["v"])

    def crossed(self, e, steps):
        """What a call raised; steps: it is the next step of an iteration."""
        return e if isinstance(e, BaseException) else Refused("no exception")

    def serve(self, m):
        graph = Graph(self)
        values = Values(self, m["nodes"], {})
        reply = {"id": m["id"]}
        try:
            args = [values.value(v) for v in m["v"]]
            for number, x in list(values.made.items()):
                graph.know(number, x)
            graph.next = max([graph.next] + [int(n) + 1 for n in m["nodes"]])
            reply["v"] = graph.reference(self.run(m["op"], *args))
            graph.message()
        except BaseException as e:
            self.failed(e)
            reply.pop("v", None)
            graph.queue.clear()
            try:
                reply["raised"] = graph.reference(e.with_traceback(None))
                graph.message()
            except BaseException as other:
                graph.queue.clear()
                reply["raised"] = graph.reference(Refused("an exception that does not cross: %s" % type(other).__name__))
        changed = {}
        for number, node in values.nodes.items():
            if number in values.made and (node[0] in EMPTY or node[0] == "object"):
                now = graph.describe(values.made[number])
                if now != node:
                    changed[number] = now
        self.send(self.packed(dict(graph.message(**reply), changed=changed)))


def kind_of(x):
    if isinstance(x, type):
        return "class"
    if isinstance(x, types.GeneratorType):
        return "generator"
    if isinstance(x, types.CoroutineType):
        return "coroutine"
    return "callable" if callable(x) else "object"
