"""The worker of runtime cpython: it loads one file and runs what the file decorates. See protocol.go for what it reads and writes.

Three threads: the main one runs plain functions, one at a time; a second one reads, so that a call can be interrupted; a third one
runs an event loop for async functions. Standard output of the user's code goes to standard error, where nothing breaks the protocol.
"""

import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import os
import queue
import signal
import sys
import threading
import typing

class Interrupted(BaseException):
    """The call's time is over."""


class NeverBegan(Interrupted):
    """It was over before the call began: nothing of it is left behind."""


class Embedded:
    """Finds modules in what the binary sent, before any that is installed under the same name: agentfly, and those beside this file."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        if name in self.sources:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name.startswith("agentfly."):
            raise ModuleNotFoundError(
                "%s is not offered here; from agentfly import tool, reward, agent, state" % name, name=name
            )
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(self.sources[name], name, "exec", dont_inherit=True), module.__dict__)


class Siblings:
    """Finds the modules of the file's folder that the file imports where the folder cannot be listed, as in a sandbox."""

    def __init__(self, places):
        self.places = places

    def find_spec(self, name, path=None, target=None):
        if name not in self.places:
            return None
        file, folder = self.places[name]
        if file:
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder] if folder else None)
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [folder]
        return spec


sys.meta_path.insert(0, Embedded(boot["modules"]))  # noqa: F821  of the line that starts this
if boot.get("siblings"):  # noqa: F821
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), Siblings(boot["siblings"]))  # noqa: F821

from agentfly_files import execute, last_line, load_error, show, unread  # noqa: E402
from agentfly_hints import Unsupported, add_default, convert, encode, hints_of, of_each, optional, schema_of  # noqa: E402


# The file.


class Entry:
    """One function that can be called."""

    def __init__(self, kind, target, options):
        self.kind, self.target, self.options = kind, target, options
        self.name = options.get("name") or target.__name__
        self.is_async = inspect.iscoroutinefunction(target)
        self.stateful = bool(options.get("stateful")) or "env_cls" in options
        self.hints, self.injected = {}, []
        self.named, self.rest = set(), None  # the parameters, and the name of **kwargs

    def line(self):
        target = inspect.unwrap(self.target)
        if inspect.isclass(target):
            try:
                lines, at = inspect.findsource(target)
                while at > 0 and lines[at - 1].startswith("@"):  # Python 3.8 gives the line of class
                    at -= 1
                return at + 1
            except (OSError, IndexError):
                return 1
        return getattr(getattr(target, "__code__", None), "co_firstlineno", 1)

    def describe(self):
        options = {k: v for k, v in self.options.items() if k not in ("env_cls", "env_kwargs", "resource_spec")}
        options.update({k: True for k in ("env_cls", "resource_spec") if k in self.options})
        out = {"kind": self.kind, "name": self.name, "doc": self.target.__doc__, "line": self.line(), "async": self.is_async}
        out["options"], out["stateful"] = options, self.stateful
        out.update(self.signature())
        return out

    def signature(self):
        import agentfly

        if inspect.isclass(self.target):
            raise Unsupported("a class cannot be a %s; decorate a function" % self.kind)
        if inspect.isgeneratorfunction(self.target) or inspect.isasyncgenfunction(self.target):
            raise Unsupported("a function with yield cannot be a %s; return the whole result" % self.kind)
        strict = self.kind == "tool" and "schema" not in self.options
        self.hints = hints_of(inspect.unwrap(self.target)) if strict else self.lenient_hints()
        parameters, rest = [], None
        for name, p in inspect.signature(self.target).parameters.items():
            if p.kind is p.VAR_KEYWORD:
                self.hints[name] = of_each(self.hints.get(name, typing.Any))
                self.rest, rest = name, self.schema(name, inspect.Parameter.empty, strict)
                continue
            if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                raise Unsupported("the argument %s is positional; arguments are passed by name, so write them out" % name)
            if name == "self":
                raise Unsupported("a method cannot be a %s; decorate a function" % self.kind)
            if self.inject(name, self.hints.get(name, inspect.Parameter.empty), agentfly.Context):
                continue
            schema = self.schema(name, p.default, strict)
            add_default(schema, p.default)
            self.named.add(name)
            parameters.append({"name": name, "schema": schema, "required": p.default is p.empty})
        return {"parameters": parameters, "open": rest is not None, "rest": rest if strict else None, "injected": self.injected}

    def schema(self, name, default, strict):
        try:
            return schema_of(optional(self.hints.get(name, inspect.Parameter.empty), default))
        except Unsupported as e:
            if strict:
                raise Unsupported("the argument %s: %s" % (name, e))
            return {}

    def hint(self, name):
        """The hint of an argument that was given: of further ones it is that of **kwargs."""
        if self.rest is not None and name not in self.named:
            name = self.rest
        return self.hints.get(name, typing.Any)

    def lenient_hints(self):
        try:
            return hints_of(inspect.unwrap(self.target))
        except Unsupported:
            return {}

    def inject(self, name, hint, context):
        """What the model does not pass."""
        is_context = name == "context" and (hint is inspect.Parameter.empty or hint is context)
        lent = name == "environment" and self.kind == "tool" and self.options.get("environment")
        if is_context or lent or name == "env" and "env_cls" in self.options:
            self.injected.append(name)
            return True
        return False


class File:
    """The loaded file and what belongs to the trajectories whose calls came here."""

    def __init__(self, memory):
        self.memory, self.entries, self.contexts, self.envs = memory, {}, {}, {}
        self.making = {}  # a lock for each of envs
        self.loop, self.lock = None, threading.Lock()

    def load(self, file, source):
        import agentfly

        try:
            module = execute(file, source)
        except BaseException as e:
            show(e)
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
        tests = [n for n, f in vars(module).items() if n.startswith("test_") and inspect.isfunction(f)]
        for n in tests:
            self.entries["test:" + n] = Entry("test", vars(module)[n], {})
        return {"functions": functions, "tests": tests, "errors": errors}

    def add(self, entry):
        if entry.name in self.entries:
            raise Unsupported("the name is used twice; write name= in one of the decorators")
        self.entries[entry.name] = entry

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
            out[name] = convert(entry.hint(name), value) if entry.kind == "tool" else value
        if "context" in entry.injected:
            if metadata is not None:
                context.metadata = metadata
            out["context"] = context
        return out

    def lend(self, entry, given, m, ask, ask_async):
        """Gives a function the environment of its trajectory: a tool that acts in one, a reward that has the argument and a trajectory in one."""
        wants = entry.kind == "reward" and "environment" in given
        if m.get("environment") and (wants or "environment" in entry.injected):
            from agentfly import AsyncEnvironment, Environment

            given["environment"] = AsyncEnvironment(ask_async) if entry.is_async else Environment(ask)
        elif "environment" in entry.injected:
            kind = entry.options["environment"]
            raise Unsupported(
                "%s acts in an environment, and there is none here; call it in a job with environment: {kind: %s}" % (entry.name, kind)
            )

    def start_loop(self):
        if self.loop is None:
            import asyncio

            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.run_loop, name="agentfly-loop", daemon=True).start()
        return self.loop

    def run_loop(self):
        while True:
            try:
                self.loop.run_forever()
            except BaseException as e:  # sys.exit() in a task that the user's code made: the others go on
                show(e)

    async def env(self, entry, trajectory):
        """The trajectory's instance of env_cls. Calls that come at once get the same one; one that cannot begin is closed."""
        import asyncio

        key = (trajectory, entry.options["env_cls"])
        async with self.making.setdefault(key, asyncio.Lock()):
            if key not in self.envs:
                env = key[1](**entry.options.get("env_kwargs", {}))
                try:
                    for step in ("start", "reset"):
                        await settled(getattr(env, step, lambda: None)())
                except BaseException:  # cancelled, too
                    await close_env(env)
                    raise
                self.envs[key] = env
            return self.envs[key]

    async def run_async(self, entry, given, context, trajectory):
        import agentfly

        agentfly._current.set(context)
        if "env" in entry.injected:
            given["env"] = await self.env(entry, trajectory)
        return await settled(entry.target(**given))

    def end(self, trajectory):
        """Forgets a trajectory. Of what it kept in state(), values with a method close are returned, which the main thread closes because it
        made them; of env_cls the future of their end, or None."""
        with self.lock:
            context = self.contexts.pop(trajectory, None)
        kept = [] if context is None else [v for v in context.state.values() if callable(getattr(v, "close", None))]
        return kept, self.end_envs(trajectory)

    def end_envs(self, trajectory):
        gone = [self.envs.pop(key) for key in list(self.envs) if key[0] == trajectory]
        for key in [key for key in list(self.making) if key[0] == trajectory]:
            self.making.pop(key, None)
        if not gone:
            return None
        import asyncio

        async def close():
            for env in gone:
                await close_env(env)

        return asyncio.run_coroutine_threadsafe(close(), self.start_loop())


async def close_env(env):
    for method in ("aclose", "close"):
        if callable(getattr(env, method, None)):
            try:
                await settled(getattr(env, method)())
            except Exception as e:  # it concerns nobody, and the others are closed too
                show(e)
            return


async def settled(value):
    return await value if inspect.isawaitable(value) else value


# The protocol.


class Worker:
    def __init__(self, lines, out, memory):
        self.lines, self.out, self.file = lines, out, File(memory)
        self.jobs, self.writing = queue.SimpleQueue(), threading.Lock()
        self.waiting = set()  # ids of calls that have not begun; one that is cancelled goes from here, and never begins
        self.current, self.tasks = None, {}  # the call of the main thread; those of the loop
        self.numbers, self.asked = itertools.count(1), {}  # what calls ask their environments, by number: who gets the answer
        self.process = os.getpid()

    def run(self):
        signal.signal(signal.SIGUSR2, self.interrupt)
        signal.signal(signal.SIGTERM, lambda number, frame: leave())  # the other side was killed
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
            try:
                m = json.loads(line)
            except Exception as e:  # it concerns one call: this thread must go on
                m = unread(line, e)
            op = m["op"]
            if "unread" in m:
                self.reply({"id": m["id"], "error": m["unread"]})
            elif op == "cancel":
                self.waiting.discard(m["id"])
                if m["id"] == self.current:
                    signal.pthread_kill(main, signal.SIGUSR2)
                task = self.tasks.get(m["id"])
                if task is not None:
                    self.file.loop.call_soon_threadsafe(task.cancel)  # from here it would not wake the loop
            elif op == "answer":
                settle = self.asked.pop(m["ask"], None)
                if settle is not None:
                    settle(m)
            elif op == "end":
                kept, envs = self.file.end(m["trajectory"])
                self.jobs.put({"op": "close", "id": m["id"], "kept": kept, "envs": envs})
            elif op == "call":
                self.waiting.add(m["id"])
                start = self.spawn if self.is_async(m) else self.jobs.put
                start(m)
            else:
                self.jobs.put(m)
        leave()

    def is_async(self, m):
        entry = self.file.entries.get(m["name"])
        return entry is not None and (entry.is_async or "env" in entry.injected)

    def reply(self, m):
        if os.getpid() != self.process:  # a child of the function's own came back here: its parent answers
            os._exit(0)
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
            return {"id": id, "error": "it was interrupted", "broken": not isinstance(e, NeverBegan)}
        if isinstance(e, Unsupported):
            return {"id": id, "error": str(e)}
        show(e)
        if isinstance(e, MemoryError):
            limit = " of %d MiB" % (self.file.memory >> 20) if self.file.memory else ""
            return {"id": id, "error": "it needs more memory than its limit" + limit, "broken": True}
        return {"id": id, "error": last_line(e)}

    def prepare(self, m):
        if m["id"] not in self.waiting:
            raise NeverBegan()
        self.waiting.discard(m["id"])
        entry = self.file.entries.get(m["name"])
        if entry is None:
            raise NameError("there is no function %s" % m["name"])
        context = self.file.context(entry, m.get("trajectory", ""))
        given = self.file.arguments(entry, m.get("arguments") or {}, context, m.get("metadata"))
        self.file.lend(entry, given, m, self.asks(m["id"]), self.asks_async(m["id"]))
        return entry, context, given

    def question(self, call, op, arguments, settle):
        """Asks the environment of a call; settle gets the answer, in the thread that reads."""
        number = next(self.numbers)
        self.asked[number] = settle
        try:
            self.reply('{"id":%d,"ask":{"id":%d,"op":"%s","arguments":%s}}' % (call, number, op, encode(arguments)))
        except BaseException:
            self.asked.pop(number, None)
            raise
        return number

    def asks(self, call):
        def ask(op, arguments):
            answers = queue.SimpleQueue()
            number = self.question(call, op, arguments, answers.put)
            try:
                return answered(answers.get())
            finally:
                self.asked.pop(number, None)

        return ask

    def asks_async(self, call):
        async def ask(op, arguments):
            import asyncio

            loop = asyncio.get_running_loop()
            future = loop.create_future()
            number = self.question(call, op, arguments, lambda m: loop.call_soon_threadsafe(lambda: future.done() or future.set_result(m)))
            try:
                return answered(await future)
            finally:
                self.asked.pop(number, None)

        return ask

    def plain(self, m):
        if m["op"] == "load":
            self.reply(dict(self.file.load(m["file"], m.get("source", "")), id=m["id"]))
            return
        if m["op"] == "close":
            self.close(m)
            return
        import agentfly

        token = None
        try:
            try:
                self.current = m["id"]
                entry, context, given = self.prepare(m)
                token = agentfly._current.set(context)
                text = encode(self.wait(entry.target(**given)))
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

    def close(self, m):
        for value in m["kept"]:
            try:
                self.wait(value.close())
            except BaseException as e:  # it concerns nobody
                show(e)
        flush()
        if m["envs"] is None:
            self.reply({"id": m["id"]})
        else:
            m["envs"].add_done_callback(lambda _: self.reply({"id": m["id"]}))

    def wait(self, value):
        """What an async function gives in the end; anything else is what it is."""
        if not inspect.isawaitable(value):
            return value
        import asyncio

        return asyncio.run_coroutine_threadsafe(settled(value), self.file.start_loop()).result()

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


def answered(m):
    """What an environment answered."""
    if m.get("error"):
        from agentfly import EnvironmentError

        raise EnvironmentError(m["error"])
    return m.get("result")


def flush():
    try:
        sys.stdout.flush()
    except Exception:  # the user's code closed or replaced it
        pass


def leave():
    """The other side is gone: nothing that was started here may stay."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def die_with(life):
    """Lets the kernel kill this process group when the pipe ends, which is when the other side does: no thread of this process need run for it."""
    try:
        import fcntl

        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)  # before O_ASYNC: SIGIO is nobody's
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):  # not on this system: the handler of SIGTERM and the end of the requests are left
        pass


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
    sys.argv = ["agentfly"]
    if boot.get("life") and os.getpgrp() == os.getpid():
        os.set_inheritable(boot["life"], False)
        die_with(boot["life"])
    import agentfly  # noqa: F401  before the limit

    limit(boot["memory"])
    if boot.get("environment"):
        from agentfly_environment import Server

        signal.signal(signal.SIGTERM, lambda number, frame: leave())
        Server(lines, out, leave).run()
    Worker(lines, out, boot["memory"]).run()


main(boot, lines)  # noqa: F821  both come from the line that starts this
