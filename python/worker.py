"""The worker of runtime cpython: it loads one file and runs what the file decorates. See protocol.go for what it reads and writes.

Three threads: the main one runs plain functions, one at a time; a second one reads, so that a call can be interrupted; a third one
runs an event loop for async functions. Standard output of the user's code goes to standard error, where nothing breaks the protocol.
"""

import collections.abc
import dataclasses
import enum
import importlib.machinery
import inspect
import json
import linecache
import os
import queue
import signal
import sys
import threading
import traceback
import types
import typing

MOST = 16 << 20  # bytes of a result
PREFIX = "agentfly_file_"  # of the name of the file's module


class Interrupted(BaseException):
    """The call's time is over."""


class Unsupported(Exception):
    """A signature has no JSON schema; the text says what to write instead."""


class Embedded:
    """Finds the module agentfly in what the binary sent, before any that is installed under the same name."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        if name != "agentfly" and not name.startswith("agentfly."):
            return None
        if self.file(name) not in self.sources:
            raise ModuleNotFoundError(
                "%s is not offered here; from agentfly import tool, reward, agent, state" % name, name=name
            )
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    @staticmethod
    def file(name):
        return "agentfly/__init__.py" if name == "agentfly" else name.replace(".", "/") + ".py"

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = self.file(module.__name__)
        exec(compile(self.sources[file], file, "exec", dont_inherit=True), module.__dict__)


# Schemas.

SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ANY = (inspect.Parameter.empty, typing.Any, object)
LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
ALLOWED = "use str, int, float, bool, list[T], dict[str, T], Literal, Optional, Union, Enum or a dataclass"


def hints_of(target):
    try:
        if sys.version_info >= (3, 9):
            return typing.get_type_hints(target, include_extras=True)
        return typing.get_type_hints(target)
    except Exception as e:  # a hint is any code
        raise Unsupported("a type hint cannot be resolved: %s; import what it names at the top of the file" % e)


def optional(hint, default):
    """A parameter whose default is None may be None, whatever its hint says; older Pythons add that themselves."""
    if default is None and hint not in ANY:
        return typing.Optional[hint]
    return hint


def is_dataclass(t):
    return isinstance(t, type) and dataclasses.is_dataclass(t)


def name_of(t):
    return getattr(t, "__name__", None) if isinstance(t, type) and not typing.get_args(t) else str(t).replace("typing.", "")


def schema_of(t, inside=()):
    if t in ANY:
        return {}
    if t is None or t in SIMPLE:
        return {"type": SIMPLE[type(None) if t is None else t]}
    if hasattr(t, "__metadata__"):  # Annotated[T, "description"]
        out = schema_of(t.__origin__, inside)
        out.update({"description": text for text in t.__metadata__ if isinstance(text, str)})
        return out
    if hasattr(t, "__supertype__"):  # NewType
        return schema_of(t.__supertype__, inside)
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin in UNIONS:
        return union_schema([schema_of(a, inside) for a in args])
    if origin is typing.Literal:
        return literal_schema(args)
    if t in LISTS or origin in LISTS:
        return list_schema(t, origin, args, inside)
    if t in DICTS or origin in DICTS:
        if args and args[0] not in (str, typing.Any):
            raise Unsupported("the keys of a dict must be str, got %s" % name_of(args[0]))
        values = schema_of(args[1], inside) if args else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return literal_schema([member.value for member in t])
    if is_dataclass(t):
        return dataclass_schema(t, inside)
    raise Unsupported("the type %s is not supported; %s" % (name_of(t), ALLOWED))


def union_schema(members):
    if len(members) == 1:
        return members[0]
    if all(list(m) == ["type"] and isinstance(m["type"], str) for m in members):
        return {"type": [m["type"] for m in members]}
    return {"anyOf": members}


def literal_schema(values):
    kinds = []
    for v in values:
        if type(v) not in SIMPLE:
            raise Unsupported("the value %r of a Literal or an Enum is not supported; use strings and numbers" % (v,))
        kinds.append(SIMPLE[type(v)])
    kinds = list(dict.fromkeys(kinds))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(values)}


def list_schema(t, origin, args, inside):
    items = [a for a in args if a is not Ellipsis]
    if (t is tuple or origin is tuple) and Ellipsis not in args and any(a != items[0] for a in items):
        raise Unsupported("a tuple of several types is not supported; use list[T] or a dataclass")
    inner = schema_of(items[0], inside) if items and not isinstance(items[0], typing.TypeVar) else {}
    return {"type": "array", "items": inner} if inner else {"type": "array"}


def dataclass_schema(t, inside):
    if t in inside:
        raise Unsupported("the dataclass %s contains itself; use dict" % t.__name__)
    hints, properties, required = hints_of(t), {}, []
    for f in dataclasses.fields(t):
        if not f.init:
            continue
        missing = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        default = f.default if f.default is not dataclasses.MISSING else inspect.Parameter.empty
        try:
            properties[f.name] = schema_of(optional(hints[f.name], default), inside + (t,))
        except Unsupported as e:
            raise Unsupported("field %s of %s: %s" % (f.name, t.__name__, e))
        add_default(properties[f.name], default)
        if missing:
            required.append(f.name)
    out = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if t.__doc__ and not t.__doc__.startswith(t.__name__ + "("):  # that is what dataclass itself writes
        out["doc"] = t.__doc__
    return out


def add_default(schema, default):
    if default is inspect.Parameter.empty or default is None:
        return
    try:
        schema["default"] = json.loads(json.dumps(default, allow_nan=False, default=plain))
    except (TypeError, ValueError):
        pass  # the model need not know it


# Values.


def convert(t, v):
    """What the function's hint says, of a value that the schema allows."""
    if t in ANY or v is None:
        return v
    if t is float and isinstance(v, int) and not isinstance(v, bool):
        return float(v)
    if t is int and isinstance(v, float) and v == int(v):
        return int(v)
    if hasattr(t, "__metadata__"):
        return convert(t.__origin__, v)
    if hasattr(t, "__supertype__"):
        return convert(t.__supertype__, v)
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin in UNIONS:
        for member in args:
            if fits(member, v):
                return convert(member, v)
        return v
    if isinstance(v, list) and (t in LISTS or origin in LISTS):
        inner = args[0] if args else typing.Any
        values = [convert(inner, x) for x in v]
        kind = origin or t
        return kind(values) if kind in (tuple, set, frozenset) else values
    if isinstance(v, dict) and (t in DICTS or origin in DICTS):
        return {k: convert(args[1], x) for k, x in v.items()} if args else v
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return t(v)
    if is_dataclass(t) and isinstance(v, dict):
        hints = hints_of(t)
        return t(**{k: convert(hints.get(k, typing.Any), x) for k, x in v.items()})
    return v


def fits(t, v):
    """Whether a member of a union is meant."""
    if t in (int, float, str, bool):
        return type(v) is t or t is float and type(v) is int
    if is_dataclass(t):
        names = {f.name for f in dataclasses.fields(t)}
        return isinstance(v, dict) and set(v) <= names
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return v in [member.value for member in t]
    origin = typing.get_origin(t)
    if t in LISTS or origin in LISTS:
        return isinstance(v, list)
    if t in DICTS or origin in DICTS:
        return isinstance(v, dict)
    return False


def plain(v):
    """JSON of what json does not know."""
    if is_dataclass(type(v)):
        return {f.name: getattr(v, f.name) for f in dataclasses.fields(v)}
    if isinstance(v, enum.Enum):
        return v.value
    if isinstance(v, (set, frozenset)):
        return sorted(v) if all(isinstance(x, str) for x in v) else list(v)
    if isinstance(v, (bytes, bytearray)):
        return image_url(bytes(v))
    for method in ("tolist", "item"):  # numpy, torch
        if callable(getattr(v, method, None)):
            return getattr(v, method)()
    if callable(getattr(v, "save", None)) and hasattr(v, "size"):  # PIL
        import io

        out = io.BytesIO()
        v.save(out, format="PNG")
        return image_url(out.getvalue())
    return str(v)


def image_url(data):
    import base64

    kinds = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
    for head, kind in kinds.items():
        if data.startswith(head):
            return "data:image/%s;base64,%s" % (kind, base64.b64encode(data).decode())
    raise TypeError("bytes that are no PNG, JPEG, GIF or WebP image; return text")


def encode(value):
    try:
        text = json.dumps(value, allow_nan=False, default=plain)
    except ValueError as e:
        if "JSON compliant" in str(e):
            raise ValueError("the function returned nan or an infinity; return finite numbers")
        raise
    if len(text) > MOST:
        raise ValueError("the function returned %d MiB; the most is %d MiB" % (len(text) >> 20, MOST >> 20))
    return text


# The file.


class Entry:
    """One function that can be called."""

    def __init__(self, kind, target, options):
        self.kind, self.target, self.options = kind, target, options
        self.name = options.get("name") or target.__name__
        self.is_async = inspect.iscoroutinefunction(target)
        self.stateful = bool(options.get("stateful")) or "env_cls" in options
        self.hints, self.injected = {}, []

    def line(self):
        target = inspect.unwrap(self.target)
        if inspect.isclass(target):
            try:
                return inspect.findsource(target)[1] + 1
            except (OSError, IndexError):
                return 1
        return getattr(getattr(target, "__code__", None), "co_firstlineno", 1)

    def describe(self):
        options = {k: v for k, v in self.options.items() if k not in ("env_cls", "env_kwargs", "resource_spec")}
        options.update({k: True for k in ("env_cls", "resource_spec") if k in self.options})
        out = {"kind": self.kind, "name": self.name, "doc": self.target.__doc__, "line": self.line(), "async": self.is_async}
        out["options"], out["stateful"] = options, self.stateful
        if self.kind == "agent":
            out["methods"] = [m for m in ("parse", "observe", "instructions", "stops") if callable(getattr(self.target, m, None))]
        else:
            out.update(self.signature())
        return out

    def signature(self):
        import agentfly

        strict = self.kind == "tool" and "schema" not in self.options
        self.hints = hints_of(inspect.unwrap(self.target)) if strict else self.lenient_hints()
        parameters, is_open = [], False
        for name, p in inspect.signature(self.target).parameters.items():
            if p.kind is p.VAR_KEYWORD:
                is_open = True
                continue
            if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                raise Unsupported("the argument %s is positional; arguments are passed by name, so write them out" % name)
            if name == "self":
                raise Unsupported("a method cannot be a %s; decorate a function" % self.kind)
            hint = self.hints.get(name, inspect.Parameter.empty)
            if self.inject(name, hint, agentfly.Context):
                continue
            try:
                schema = schema_of(optional(hint, p.default))
            except Unsupported as e:
                if strict:
                    raise Unsupported("the argument %s: %s" % (name, e))
                schema = {}
            add_default(schema, p.default)
            parameters.append({"name": name, "schema": schema, "required": p.default is p.empty})
        return {"parameters": parameters, "open": is_open, "injected": self.injected}

    def lenient_hints(self):
        try:
            return hints_of(inspect.unwrap(self.target))
        except Unsupported:
            return {}

    def inject(self, name, hint, context):
        """What the model does not pass."""
        is_context = name == "context" and (hint is inspect.Parameter.empty or hint is context)
        if is_context or name == "env" and "env_cls" in self.options:
            self.injected.append(name)
            return True
        return False


class File:
    """The loaded file and what belongs to the trajectories whose calls came here."""

    def __init__(self, memory):
        self.memory, self.entries, self.contexts, self.envs = memory, {}, {}, {}
        self.loop, self.lock = None, threading.Lock()

    def load(self, file, source):
        import agentfly

        module = types.ModuleType(PREFIX + os.path.splitext(os.path.basename(file))[0])
        module.__file__ = file
        sys.modules[module.__name__] = module
        sys.path.insert(0, os.path.dirname(file))
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        try:
            exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
        except BaseException as e:
            traceback.print_exc()
            return {"errors": [load_error(e, file)]}
        functions, errors = [], []
        for kind, target, options in agentfly._declared:
            theirs = getattr(target, "__module__", None) != module.__name__
            if options.get("auto_register", True) is False or theirs and not any(v is target for v in vars(module).values()):
                continue
            entry = Entry(kind, target, options)
            try:
                functions.append(entry.describe())
                self.add(entry)
            except Unsupported as e:
                errors.append("%d: %s: %s" % (entry.line(), entry.name, e))
            except Exception as e:  # of the constructor of an agent
                traceback.print_exc()
                errors.append("%d: %s: %s" % (entry.line(), entry.name, last_line(e)))
        tests = [n for n, f in vars(module).items() if n.startswith("test_") and inspect.isfunction(f)]
        for n in tests:
            self.entries["test:" + n] = Entry("test", vars(module)[n], {})
        return {"functions": functions, "tests": tests, "errors": errors}

    def add(self, entry):
        if entry.name in self.entries:
            raise Unsupported("the name is used twice; write name= in one of the decorators")
        self.entries[entry.name] = entry
        if entry.kind != "agent":
            return
        instance = entry.target()
        for method in ("parse", "observe", "instructions", "stops"):
            bound = getattr(instance, method, None)
            if callable(bound):
                self.entries[entry.name + "." + method] = Entry("method", bound, {"name": method})
            elif method in ("parse", "observe"):
                raise Unsupported("an agent needs the method %s" % method)

    def context(self, entry, trajectory):
        import agentfly

        if not entry.stateful:
            return agentfly.Context(trajectory, state={} if entry.kind == "test" else None)
        with self.lock:
            if trajectory not in self.contexts:
                self.contexts[trajectory] = agentfly.Context(trajectory, state={})
            return self.contexts[trajectory]

    def arguments(self, entry, given, context, metadata):
        out = {}
        for name, value in given.items():
            out[name] = convert(entry.hints.get(name, typing.Any), value) if entry.kind == "tool" else value
        if "context" in entry.injected:
            if metadata is not None:
                context.metadata = metadata
            out["context"] = context
        return out

    def start_loop(self):
        if self.loop is None:
            import asyncio

            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, name="agentfly-loop", daemon=True).start()
        return self.loop

    async def env(self, entry, trajectory):
        key = (trajectory, entry.options["env_cls"])
        if key not in self.envs:
            env = key[1](**entry.options.get("env_kwargs", {}))
            for step in ("start", "reset"):
                await settled(getattr(env, step, lambda: None)())
            self.envs[key] = env
        return self.envs[key]

    async def run_async(self, entry, given, context, trajectory):
        import agentfly

        agentfly._current.set(context)
        if "env" in entry.injected:
            given["env"] = await self.env(entry, trajectory)
        return await settled(entry.target(**given))

    def end(self, trajectory):
        with self.lock:
            self.contexts.pop(trajectory, None)
        gone = [self.envs.pop(key) for key in list(self.envs) if key[0] == trajectory]
        if not gone:
            return
        import asyncio

        async def close():
            for env in gone:
                for method in ("aclose", "close"):
                    if callable(getattr(env, method, None)):
                        await settled(getattr(env, method)())
                        break

        asyncio.run_coroutine_threadsafe(close(), self.start_loop())


async def settled(value):
    return await value if inspect.isawaitable(value) else value


def load_error(e, file):
    line = 1
    if isinstance(e, SyntaxError) and e.filename == file:
        return "%d: SyntaxError: %s" % (e.lineno or 1, e.msg)
    for frame in traceback.extract_tb(e.__traceback__):
        if frame.filename == file:
            line = frame.lineno
    text = "%d: %s" % (line, last_line(e))
    if isinstance(e, ModuleNotFoundError) and not str(e.name).startswith("agentfly"):
        text += "; install it for %s, or name the interpreter that has it" % sys.executable
    return text


def last_line(e):
    text = " ".join(traceback.format_exception_only(type(e), e)[-1].split())
    if text.startswith(PREFIX):  # a class of the file's own
        text = text.partition(".")[2]
    if isinstance(e, AssertionError) and not str(e) and e.__traceback__:
        frame = traceback.extract_tb(e.__traceback__)[-1]
        text += ": line %d: %s" % (frame.lineno, frame.line)
    return text[:2000]


# The protocol.


class Worker:
    def __init__(self, lines, out, memory):
        self.lines, self.out, self.file = lines, out, File(memory)
        self.jobs, self.writing = queue.SimpleQueue(), threading.Lock()
        self.current, self.tasks = None, {}  # the call of the main thread; those of the loop

    def run(self):
        signal.signal(signal.SIGUSR2, self.interrupt)
        threading.Thread(target=self.read, name="agentfly-reader", daemon=True).start()
        while True:
            try:
                self.plain(self.jobs.get())
            except Interrupted:  # it came as the call ended
                self.current = None

    def interrupt(self, number, frame):
        if self.current is not None:
            raise Interrupted()

    def read(self):
        main = threading.main_thread().ident
        for line in self.lines:
            m = json.loads(line)
            op = m["op"]
            if op == "cancel":
                if m["id"] == self.current:
                    signal.pthread_kill(main, signal.SIGUSR2)
                task = self.tasks.get(m["id"])
                if task is not None:
                    task.cancel()
            elif op == "end":
                self.file.end(m["trajectory"])
            elif op == "call" and self.is_async(m):
                self.spawn(m)
            else:
                self.jobs.put(m)
        leave()

    def is_async(self, m):
        entry = self.file.entries.get(m["name"])
        return entry is not None and (entry.is_async or "env" in entry.injected)

    def reply(self, m):
        data = (m if isinstance(m, str) else json.dumps(m)) + "\n"
        with self.writing:
            self.out.write(data.encode())
            self.out.flush()

    def result(self, id, value):
        try:
            self.reply('{"id":%d,"result":%s}' % (id, encode(value)))
        except Exception as e:
            self.reply(self.failure(id, e))

    def failure(self, id, e):
        import concurrent.futures

        if isinstance(e, (Interrupted, concurrent.futures.CancelledError)) or type(e).__name__ == "CancelledError":
            return {"id": id, "error": "it was interrupted", "broken": True}
        if not isinstance(e, Unsupported):
            traceback.print_exception(type(e), e, e.__traceback__)
        if isinstance(e, MemoryError):
            limit = " of %d MiB" % (self.file.memory >> 20) if self.file.memory else ""
            return {"id": id, "error": "it needs more memory than its limit" + limit, "broken": True}
        return {"id": id, "error": last_line(e)}

    def prepare(self, m):
        entry = self.file.entries.get(m["name"])
        if entry is None:
            raise NameError("there is no function %s" % m["name"])
        context = self.file.context(entry, m.get("trajectory", ""))
        return entry, context, self.file.arguments(entry, m.get("arguments") or {}, context, m.get("metadata"))

    def plain(self, m):
        if m["op"] == "load":
            self.reply(dict(self.file.load(m["file"], m.get("source", "")), id=m["id"]))
            return
        import agentfly

        token = None
        try:
            try:
                self.current = m["id"]
                entry, context, given = self.prepare(m)
                token = agentfly._current.set(context)
                value = entry.target(**given)
                if inspect.isawaitable(value):
                    import asyncio

                    value = asyncio.run_coroutine_threadsafe(settled(value), self.file.start_loop()).result()
                text = encode(value)
            finally:
                self.current = None
        except BaseException as e:
            self.reply(self.failure(m["id"], e))
        else:
            self.reply('{"id":%d,"result":%s}' % (m["id"], text))
        finally:
            if token is not None:
                agentfly._current.reset(token)
            flush()

    def spawn(self, m):
        loop = self.file.start_loop()

        async def run():
            try:
                entry, context, given = self.prepare(m)
                self.result(m["id"], await self.file.run_async(entry, given, context, m.get("trajectory", "")))
            except BaseException as e:
                self.reply(self.failure(m["id"], e))
            finally:
                self.tasks.pop(m["id"], None)
                flush()

        def start():
            self.tasks[m["id"]] = loop.create_task(run())

        loop.call_soon_threadsafe(start)


def flush():
    try:
        sys.stdout.flush()
    except (ValueError, OSError, AttributeError):  # the user's code closed or replaced it
        pass


def leave():
    """The other side is gone: nothing that was started here may stay."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def limit(memory):
    try:
        import resource
    except ImportError:  # not on this system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def main(boot, lines):
    out = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.meta_path.insert(0, Embedded(boot["modules"]))
    sys.argv = ["agentfly"]
    import agentfly  # noqa: F401  before the limit

    limit(boot["memory"])
    Worker(lines, out, boot["memory"]).run()


main(boot, lines)  # noqa: F821  both come from the line that starts this
