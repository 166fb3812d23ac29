"""Runs the code that is tested, and answers what code_tests.py asks of it. This process is the code's: it can do what it likes here, and
gains nothing but that its answers are its own. code_values.py stands before this."""
import asyncio
import builtins
import importlib
import io
import os

WATCHED = "builtins sys os json json.encoder json.decoder math operator re collections functools unittest unittest.case".split()


class Asked(io.TextIOBase):
    """Standard input, which is that of the tests."""

    def readable(self):
        return True

    def readline(self, *n):
        return peer.ask("stdin", "readline", *n)

    def read(self, *n):
        return peer.ask("stdin", "read", *n)


def of_code(x):
    x = getattr(x, "__wrapped__", x)
    return getattr(getattr(x, "__code__", None), "co_filename", "") == "<solution>" or isinstance(x, type) and x.__module__ == "solution"


class Answers(Peer):
    """The side of the code."""

    def __init__(self, lines, out):
        super().__init__(lines, self.line)
        self.out, self.process, self.tampered, self.told = out, os.getpid(), False, 0
        self.names, self.loop = {"__name__": "solution"}, None
        self.streams = {"out": io.StringIO(), "err": io.StringIO()}
        self.modules = {name: sys.modules[name] for name in WATCHED if name in sys.modules}

    def line(self, text):
        if os.getpid() != self.process:  # the code forked
            os._exit(0)
        self.out.write(text.encode() + b"\n")
        self.out.flush()

    def packed(self, message):
        """A message with what was printed, the names that there are now, and whether the code did what only deception needs."""
        for name, printed in self.streams.items():
            message[name] = printed.getvalue()[: 1 << 20]
            printed.seek(0)
            printed.truncate()
        if len(self.names) != self.told:
            self.told, message["names"] = len(self.names), list(map(str, self.names))
        if self.tampered:
            message["tampered"] = True
        return dumps(message)

    def gone(self):
        os._exit(0)

    forged = gone

    def read(self):
        """A message, before it what the tests changed in the environment and the folder that they stand in."""
        m = super().read()
        for name, value in m.get("environ", {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if "folder" in m:
            os.chdir(m["folder"])
        return m

    def export_member(self, x):
        node = self.export(x)
        text = [text_of(x), str(repr(x)), x.name if isinstance(x.name, str) else ""]
        if isinstance(x, int):
            return ["mine", node[1], "int", format(int.__int__(x), "x")] + text
        if isinstance(x, str):
            return ["mine", node[1], "str", str.__str__(x)] + text
        return None

    def look(self):
        """Looks for what the code put in the place of others' functions."""
        now = vars(builtins)
        found = any(now.get(name) is not was for name, was in BUILTIN.items() if name != "_")
        for name in WATCHED:
            module = sys.modules.get(name)
            found = found or self.modules.get(name, module) is not module
            found = found or any(of_code(v) for v in vars(module).values()) if module else found
        case = getattr(sys.modules.get("unittest.case"), "TestCase", object)
        self.tampered = self.tampered or found or any(of_code(v) for v in vars(case).values())

    def foreign(self, node):
        if node[0] == "import":
            return functools.reduce(getattr, node[2].split("."), importlib.import_module(node[1]))
        return super().foreign(node)

    def export_tuple(self, x):
        cls = type(x)
        own = {name for c in cls.__mro__[: cls.__mro__.index(tuple)] for name in vars(c) if not name.startswith("_")}
        if cls is tuple or cls.__module__ != "solution" or not own - set(getattr(cls, "_fields", ())):
            return None
        return [self.export(x)[1], text_of(x), str(repr(x))]

    def run(self, op, *args):
        return getattr(self, "do_" + op)(*args)

    def do_load(self, setup, code):
        exec(compile(setup, "<setup>", "exec"), self.names)
        self.shared = {name for name, v in self.names.items() if isinstance(v, type) and v.__module__ == "solution"}
        try:
            exec(compile(code, "<solution>", "exec"), self.names)
        finally:
            self.look()

    def do_share(self, names):
        """The classes of the setup that both sides have: their instances cross by value."""
        self.shared = {n for n in names if isinstance(self.names.get(n), type)}

    def do_end(self):
        self.look()

    def do_name(self, name):
        """A global of the code: a module, or what was imported under its own name, as where it lies; the tests import it themselves."""
        found = self.names[name]
        module = getattr(found, "__module__", None)
        own = getattr(found, "__qualname__", None) or getattr(found, "_name", None)
        if own == name and isinstance(module, str) and module != "solution" and getattr(sys.modules.get(module), name, None) is found:
            return ("import", module, name)
        if isinstance(found, types.ModuleType):
            return ("import", found.__name__, None)
        return ("value", found)

    def do_call(self, f, args, kwargs):
        return f(*args, **kwargs)

    def do_method(self, x, name, args, kwargs):
        end = getattr(type(x), name)(x, *args, **kwargs)
        return self.finish(end) if name in ("__anext__", "__aenter__", "__aexit__") else end

    def finish(self, awaitable):
        async def wait():
            return await awaitable

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.loop = self.loop or asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
            return self.loop.run_until_complete(wait())
        return run_coroutine(awaitable)

    do_await = finish

    def do_getattr(self, x, name):
        return getattr(x, name)

    def do_setattr(self, x, name, value):
        setattr(x, name, value)

    def do_delattr(self, x, name):
        delattr(x, name)

    def do_iter(self, x):
        return iter(x)

    def do_hash(self, x):
        return hash(x)

    def do_format(self, x, spec):
        return format(x, spec)

    def do_isinstance(self, x, cls):
        return isinstance(x, cls)

    def do_issubclass(self, x, cls):
        return issubclass(x, cls)

    def do_unary(self, op, x, *args):
        return run_unary(op, x, *args)

    def do_binary(self, op, a, b):
        return OPERATORS[op](a, b)

    def do_plain(self, x):
        """The content of an object whose class derives from a plain one, whatever its methods say."""
        if isinstance(x, dict):
            return dict(dict.items(x))
        for kind in list, set, frozenset, bytearray, bytes, collections.deque:
            if isinstance(x, kind):
                return kind(kind.__iter__(x))
        return None

    def do_send(self, generator, what, value):
        return self.run_send(generator, what, value)


def main():
    lines, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in 0, 1, 2:
        os.dup2(null, fd)
    made = Answers(lines, out)
    sys.stdout = sys.__stdout__ = made.streams["out"]
    sys.stderr = sys.__stderr__ = made.streams["err"]
    sys.stdin = sys.__stdin__ = Asked()
    builtins.input = BUILTIN["input"] = lambda prompt="": made.ask("input", str(prompt))
    out.write(b"ready\n")
    out.flush()
    return made


peer = main()
while True:
    peer.serve(peer.read())
