"""Runs tests on code that another process runs (code_answers.py). Here are the tests, their expectations and the comparisons: what the
code returns is rebuilt as plain data of this process, and where only the code could answer whether a value is right, that is refused.
code_values.py stands before this. The first line of standard input is the request; P NUMBER says that a test passed, R that what it did
does not cross, W that it passed with a comparison that the code made, N that any code passes it that runs, and why, T that the code tampered, C is a line
for the code."""
import ast
import builtins
import importlib
import io
import os

# Methods of plain data that say whether something holds: an object that has one in the place of data answers yes to everything.
JUDGES = {name for cls in (str, bytes, set, frozenset) for name in dir(cls) if name.startswith("is")} | {"startswith", "endswith", "is_integer", "issuperset"}
NUMBERS = "len bool int float complex index".split()
NAMES_OF_FUNCTIONS = ("__name__", "__qualname__", "__doc__", "__module__")
OPEN = (io.IOBase,)
# What an object of the code may be as plain data: of which kind is told once. Numbers are not among them: they cross by value.
PLAIN = {type(None), frozenset, bytes} | set(EMPTY.values())
# Operations of which "nothing", "zero" or "empty" comes out when the object of the code is what is wanted: a difference, a remainder.
CANCEL = {i + op for op in "sub mod and or xor divmod".split() for i in ("", "i")}
# Modules whose functions and classes no name of the code stands for: their objects equal what they are not, or are the tests'.
JUDGING = {"unittest", "test", "tests", "__main__", "mock", "pytest", "_pytest", "nose", "hypothesis"}


class Ended(BaseException):
    """The code's process is gone. No test catches it with Exception."""


class Names(dict):
    """The globals of the tests: their own, then those of the code, then the builtin ones."""

    def __missing__(self, name):
        if name not in side.remote or name in vars(builtins) and name not in side.shadowing:
            raise KeyError(name)
        return side.name(name)


class Tests(Peer):
    """The side of the tests."""

    def __init__(self, lines, results, request):
        super().__init__(lines, lambda text: self.result("C " + text))
        self.results, self.request, self.process = results, request, os.getpid()
        self.remote, self.names, self.dead, self.shadowing, self.refused = set(), Names(), False, set(), False
        self.names["__name__"] = "tests"
        self.ends, self.broken, self.trusted, self.kinds, self.tree, self.environ, self.folder = False, False, False, {}, None, dict(os.environ), os.getcwd()

    def result(self, text):
        if os.getpid() == self.process:
            self.results.write(text.encode() + b"\n")
            self.results.flush()

    # What the code answers.

    def gone(self):
        self.dead = True
        raise Ended("the process of the code has ended")

    def forged(self):
        self.result("T")
        self.gone()

    def read(self):
        if self.dead:
            self.gone()
        m = super().read()
        if m.get("tampered"):
            self.result("T")
        if isinstance(m.get("names"), list):
            self.remote = {n for n in m["names"] if isinstance(n, str)}
        for name, stream in ("out", sys.stdout), ("err", sys.stderr):
            if isinstance(m.get(name), str) and m[name]:
                stream.write(m[name])
        return m

    def packed(self, message):
        """A message with what changed in the environment and the folder that the tests stand in: the code's are to be the same."""
        now = {k: v for k, v in os.environ.items() if isinstance(k, str) and isinstance(v, str)}
        if now != self.environ:
            message["environ"] = {k: now.get(k) for k in now.keys() | self.environ.keys() if now.get(k) != self.environ.get(k)}
            self.environ = now
        try:
            folder = os.getcwd()
        except OSError:  # it was removed
            folder = self.folder
        if folder != self.folder:
            self.folder = message["folder"] = folder
        return super().packed(message)

    def crossed(self, e, steps):
        if isinstance(e, ENDS) and not (steps or self.ends):  # map() and all() would take it for the end of the tests
            return RuntimeError("the code raised " + type(e).__name__)
        if type(e).__name__ == "Refused":  # by the side of the code, which may say so of itself too: it only fails by it
            self.refused = True
        return super().crossed(e, steps)

    def refuse(self, what):
        self.refused = True
        raise Refused(what)

    def ask(self, op, *args, of=None):
        """Asks the code; first come the questions that it may not be asked, because it would hear which answer is right."""
        if self.dead:
            self.gone()
        if op == "binary":
            return self.binary(*args)
        if op == "getattr" and args[1] in JUDGES:
            self.judged("asks an object of the code whether it " + args[1])
        fed = fed_of(of)
        if fed and (op == "hash" or op == "format" and args[1] or op == "unary" and args[0] in NUMBERS):
            self.judged("makes a number of an object that was computed with an expected value")
        got = super().ask(op, *args)
        if op == "method" and args[1] in ("__exit__", "__aexit__"):
            return self.left(bool(got), *args[2])
        if fed == CANCELLED and op not in ("setattr", "delattr", "isinstance", "issubclass"):
            return self.feed(got, fed)
        if op == "unary" and args[0] == "next" or op == "method" and args[1] in ("__getitem__", "__anext__"):
            return got
        if fed and op == "unary" and args[0] not in ("str", "repr", "reversed"):
            return self.feed(got, fed)
        return got

    def judged(self, what):
        self.refuse("the test %s: what the code compares with an expected value proves nothing; compare plain data" % what)

    def feed(self, got, fed):
        """Marks what came out of a computation in which the code heard plain data of the tests. It has to be an object: of plain data
        the code would have said which, knowing what is wanted."""
        if not isinstance(got, Handle):
            self.judged("computes with an object of the code")
        object.__setattr__(got, "_handle_fed", max(fed, fed_of(got)))
        return got

    def plain(self, handle):
        """The plain data that an object of the code holds, or None. Of which kind it is stays what the code said first."""
        got = super().ask("plain", handle)
        if type(got) not in PLAIN or self.kinds.setdefault(number_of(handle), type(got)) is not type(got):
            self.forged()
        return got

    def binary(self, op, a, b):
        handles = [x for x in (a, b) if isinstance(x, Handle)]
        fed = max(fed_of(x) for x in handles)
        if len(handles) == 2:
            got = super().ask("binary", op, a, b)
            self.trusted = self.trusted or op in COMPARED
            return got if op in COMPARED or not fed else self.feed(got, fed)
        if op in ("eq", "ne") and (a is None or b is None):
            return op == "ne"
        plain = None if fed else self.plain(handles[0])  # one that heard what is wanted is not asked what it is
        if plain is not None:
            return OPERATORS[op](plain if handles[0] is a else a, plain if handles[0] is b else b)
        if op in COMPARED:
            self.judged("compares an object of the code with plain data")
        return self.feed(super().ask("binary", op, a, b), max(fed, CANCELLED if op in CANCEL else COMPUTED))

    def left(self, swallow, kind, e, traceback):
        """Whether a with statement over an object of the code swallows an exception as the code says. It swallows no failure of a test: no
        AssertionError, and nothing that comes before a check in the body."""
        if kind is None or not swallow:
            return False
        if not isinstance(e, Exception) or isinstance(e, AssertionError):
            return False
        frame, line = traceback.tb_frame, traceback.tb_lineno
        if frame.f_code.co_filename != "<tests>":
            return False
        found = [n for n in ast.walk(self.tree) if isinstance(n, (ast.With, ast.AsyncWith)) and n.body[0].lineno <= line <= n.body[-1].end_lineno]
        found = [n for n in found if n.lineno <= frame.f_lineno <= n.items[-1].context_expr.end_lineno] or found
        if not found or any(checks(n) and n.end_lineno >= line for one in found for n in ast.walk(one)):
            return False
        while traceback.tb_next:  # functions of the tests that the body calls
            traceback = traceback.tb_next
            name, line = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
            functions = [n for n in ast.walk(self.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.lineno <= line <= n.end_lineno]
            if name == "<setup>" or name == "<tests>" and any(checks(n) for one in functions for n in ast.walk(one)):
                return False
        return True

    def failed(self, e):
        """Told of what a function of the tests raised that the code called, and of what is thrown into a generator of the code. Where that is
        an assertion the test fails, also if the code keeps it back."""
        self.broken = self.broken or isinstance(e, AssertionError)

    def name(self, name):
        """A global of the code. What the code imported is imported here, of what the machine has only what cannot judge."""
        got = self.ask("name", name)
        if got[0] == "value":
            if isinstance(got[1], type) and issubclass(AssertionError, got[1]) and got[1].__name__ != name:
                self.refuse("the name %s of the code is %s: except would take the failure of a test" % (name, got[1].__name__))
            return got[1]
        module = str(got[1])
        if "__main__" in module or module.partition(".")[0] in JUDGING and (got[2] is not None or module.partition(".")[0] != "unittest"):
            self.refuse("the name %s of the code is one of %s" % (name, module))
        found = importlib.import_module(module)
        if got[2] is not None:
            found = getattr(found, str(got[2]))
            home, own = str(getattr(found, "__module__", None)), getattr(found, "__qualname__", None) or getattr(found, "_name", None)
            kinds = (type, types.FunctionType, types.BuiltinFunctionType, type(functools.lru_cache(len)))
            if own != name or home.partition(".")[0] in JUDGING or not isinstance(found, kinds) and type(found).__module__ != "typing":
                self.refuse("the name %s of the code is no function and no class of the machine" % name)
        self.names[name] = found
        return found

    # What the code may ask.

    def export(self, x):
        module, name = getattr(x, "__module__", None) or getattr(getattr(x, "__objclass__", None), "__module__", None), getattr(x, "__qualname__", None)
        if isinstance(module, str) and isinstance(name, str) and module != "tests" and "<" not in name and reached(module, name) is x:
            return ["import", module, name]  # a function or class of the machine, which the code has too
        kinds = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, types.GeneratorType, types.CoroutineType)
        if not isinstance(x, kinds + OPEN) and not (isinstance(x, type) or self.own(x) or mocked(x) or hasattr(type(x), "__next__")):
            self.refuse("an object of the class %s does not cross to the code" % type(x).__name__)
        return super().export(x)

    def own(self, x):
        """Whether x is an object of the tests that the code may look into."""
        case = getattr(sys.modules.get("unittest"), "TestCase", ())
        return not isinstance(x, (type, types.FunctionType, case)) and type(x).__module__ == "tests"

    def run(self, op, *args):
        if op == "input":
            return builtins.input(args[0])
        if op == "stdin" and args[0] in ("read", "readline"):
            return getattr(sys.stdin, args[0])(*args[1:])
        at = {"unary": 1, "binary": 1, "isinstance": 1, "issubclass": 1}.get(op, 0)
        x = args[at]
        if op == "binary" and id(x) not in self.exported:
            x = args[2]
        if id(x) not in self.exported:
            raise AttributeError("it is not the code's to use")
        if op == "call":
            return x(*args[1], **args[2])
        if op == "getattr":
            return self.attribute(x, args[1])
        if op == "send":
            return self.run_send(x, args[1], args[2])
        if op == "await":
            return run_coroutine(x)
        if op == "iter":
            return iter(x)
        if op in ("isinstance", "issubclass"):
            return BUILTIN[op](args[0], x)
        if op == "unary":
            return run_unary(args[0], x, *args[2:])
        if op == "hash":
            return hash(x)
        if op == "setattr" and self.own(x) and not args[1].startswith("_") and not callable(getattr(type(x), args[1], None)):
            return object.__setattr__(x, args[1], args[2])
        if op == "delattr" and self.own(x) and args[1] in vars(x):
            return object.__delattr__(x, args[1])
        if op == "binary" and self.own(x):
            return OPERATORS[args[0]](args[1], args[2])
        if op == "format":
            return format(x, args[1])
        if op == "method" and self.own(x) and args[1] in ("__getitem__", "__setitem__", "__delitem__", "__enter__", "__exit__"):
            return getattr(x, args[1])(*args[2], **args[3])
        raise AttributeError("it is not the code's to use")

    def attribute(self, x, name):
        """Of functions their names; of the tests' own objects and of open texts what has no underscore: nothing leads to a frame or a global."""
        if isinstance(x, (types.FunctionType, types.MethodType, type)):
            if name in NAMES_OF_FUNCTIONS or not name.startswith("_") and name in vars(x) and not isinstance(x, type):
                return getattr(x, name)
        elif not name.startswith("_") and (self.own(x) or isinstance(x, OPEN)):  # a file that the tests gave
            return getattr(x, name)
        elif mocked(x) and not name.startswith("_"):
            found = getattr(x, name)
            if not isinstance(found, types.MethodType):
                return found
        raise AttributeError(name)

    # The tests.

    def load(self):
        r = self.request
        for node in ast.parse(r["setup"]).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and stub(node):
                self.names.pop(node.name, None)
        self.names.pop(r["entry"], None)
        for v in self.names.values():
            if isinstance(v, type) and v.__module__ == "tests":
                v.__module__ = "solution"
        shared = {name for name, v in self.names.items() if isinstance(v, type) and v.__module__ == "solution"}
        self.ask("load", r["setup"], r["code"])
        self.ask("share", sorted(shared))
        self.shared = shared
        self.shadowing = self.shadowed()

    def shadowed(self):
        """The builtin names that are the code's here: none, unless the tests name nothing else that could be the code's."""
        loaded, bound = set(), set(self.names)
        for text in self.request["tests"]:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Name):
                    (loaded if isinstance(node.ctx, ast.Load) else bound).add(node.id)
                elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    bound.add(node.name)
                elif isinstance(node, ast.arg):
                    bound.add(node.arg)
                elif isinstance(node, ast.alias):
                    bound.add((node.asname or node.name).split(".")[0])
                elif isinstance(node, ast.ExceptHandler):
                    bound.add(node.name)
        other = loaded - bound - set(BUILTIN)
        return set() if other or self.request["entry"] else (loaded - bound) & set(BUILTIN) - {n for n, v in BUILTIN.items() if isinstance(v, type)}

    def fetch(self, test):
        """Puts the code's names that the test uses into its globals, where the body of a class finds them; plain data is asked for anew."""
        for node in ast.walk(ast.parse(test)):
            if isinstance(node, ast.Name) and node.id not in self.names:
                try:
                    got = self.names[node.id]
                except KeyError:
                    continue
                if isinstance(got, (Handle, type)):
                    self.names[node.id] = got

    def whole(self, test):
        """Runs a test and what it defines. What has the same name in the code, or in a test before, is another object: it does not stand in
        for it."""
        self.tree = ast.parse(test)
        self.ends = any(getattr(n, "id", getattr(n, "attr", "")) in ("StopIteration", "StopAsyncIteration") for n in ast.walk(self.tree))
        self.fetch(test)
        before = dict(self.names)
        exec(compile(test, "<tests>", "exec"), self.names)
        case = getattr(sys.modules.get("unittest"), "TestCase", ())
        for name, value in list(self.names.items()):
            if before.get(name) is value or isinstance(value, Handle):
                continue
            if name.startswith("test_") and callable(value):
                end = value()
                if hasattr(end, "__await__"):  # of an async test
                    run_coroutine(end)
            elif name == "check" and self.request["entry"]:
                value(self.names[self.request["entry"]])
            elif isinstance(value, type) and issubclass(value, case) and value.__module__ == "tests":
                result = sys.modules["unittest"].TestResult()
                sys.modules["unittest"].defaultTestLoader.loadTestsFromTestCase(value).run(result)
                if not result.wasSuccessful():
                    raise AssertionError(name)

    def idle(self):
        """The number of a test that any code passes that runs, and why, or None. A text that only prepares a later one is none of them."""
        known, checked = (self.methods(), self.defined()), False
        for number, test in reversed(list(enumerate(self.request["tests"]))):
            body = ast.parse(test).body
            if any(acts(node, self.request["entry"], known) for node in body):
                checked = True
            elif not checked or not any(isinstance(node, BINDS) for node in body):
                return number, idleness(body, self.request["entry"])
        return None

    def methods(self):
        """Whether any class that a test can derive from has methods that unittest calls."""
        for text in [self.request["setup"]] + self.request["tests"]:
            classes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef)]
            if any(unittests(name) for one in classes for node in one.body for name in bound(node)):
                return True
        return False

    def defined(self):
        """The names that the texts of the task define themselves."""
        names = set()
        for text in [self.request["setup"]] + self.request["tests"]:
            names.update(name for node in ast.parse(text).body for name in bound(node))
        return names

    def faulty(self):
        """What says that the task's own texts fail with any code, or None: one that is no Python, and a setup that raises."""
        for number, test in enumerate(self.request["tests"]):
            wrong = failing(lambda: compile(test, "<tests>", "exec"))
            if wrong:
                return "F %d %s" % (number, wrong)
        setup = self.request["setup"]
        wrong = failing(lambda: exec(compile(setup, "<setup>", "exec"), self.names))
        return wrong and "S " + wrong

    def grade(self):
        faulty = self.faulty()
        if faulty:
            return self.result(faulty)
        idle = self.idle()
        if idle:
            return self.result("N %d %s" % idle)
        try:
            self.load()
        except BaseException:
            return
        for number, test in enumerate(self.request["tests"]):
            self.refused = self.broken = self.trusted = False
            try:
                self.whole(test)
            except BaseException:
                if self.refused:
                    self.result("R %d" % number)
                continue
            if not self.refused and not self.broken and not self.dead:  # also where the test caught what said so
                self.result("P %d" % number)
                if self.trusted:
                    self.result("W %d" % number)
        if not self.dead:
            try:
                self.ask("end")
            except BaseException:
                return


# What the code heard of an object's value: plain data that the object was computed with, and those where nothing is left of what is right.
COMPUTED, CANCELLED = 1, 2


def fed_of(x):
    return object.__getattribute__(x, "_handle_fed") if isinstance(x, Handle) else 0


def checks(node):
    return isinstance(node, ast.Assert) or isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith(("assert", "fail"))


# Statements that give names something, conditions that do not hold here, and expressions that are values as they stand.
BINDS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.If)
MAIN = [ast.dump(ast.parse(text, mode="eval").body) for text in ("__name__ == '__main__'", "'__main__' == __name__")]
VALUES = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.unaryop, ast.expr_context)


def acts(node, entry, known):
    """Whether a statement does anything that can fail. What is not known to do nothing counts: a call, a name that is read, a loop."""
    methods, names = known
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        called = node.name.startswith("test_") or node.name == "check" and entry
        defaults = node.args.defaults + [d for d in node.args.kw_defaults if d]
        a = node.args
        said = [p.annotation for p in getattr(a, "posonlyargs", []) + a.args + a.kwonlyargs + [a.vararg, a.kwarg] if p] + [node.returns]
        asked = any(reads(n, names) for n in said if n)
        return asked or bool(node.decorator_list) or not all(map(value, defaults)) or called and any(acts(n, "", known) for n in node.body)
    if isinstance(node, ast.ClassDef):
        derived = any(getattr(base, "id", "") != "object" for base in node.bases)
        asked = any(reads(base, names) for base in node.bases)
        rest = [n for n in node.body if not isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        return asked or bool(node.decorator_list or node.keywords) or derived and methods or any(acts(n, "", known) for n in rest)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(name == "*" or name.startswith("test_") or name == "check" and entry for name in bound(node))
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        plain = all(isinstance(t, ast.Name) and not t.id.startswith("__") for t in getattr(node, "targets", None) or [node.target])
        asked = isinstance(node, ast.AnnAssign) and reads(node.annotation, names)
        return asked or not plain or node.value is not None and not value(node.value)
    if isinstance(node, ast.If):  # the main guard: the tests are no main program
        return ast.dump(node.test) not in MAIN or any(acts(n, entry, known) for n in node.orelse)
    if isinstance(node, (ast.Expr, ast.Return)):
        return node.value is not None and not value(node.value)
    return not isinstance(node, (ast.Pass, ast.Global, ast.Nonlocal))


def reads(node, names):
    """Whether an annotation or a base reads a name that neither Python nor a text of the task has: the code has it, or it fails."""
    return any(isinstance(n, ast.Name) and n.id not in names and n.id not in BUILTIN for n in ast.walk(node))


def value(node):
    return all(isinstance(n, VALUES) for n in ast.walk(node))


def bound(node):
    """The names that a definition, an import or an assignment binds."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def unittests(name):
    return name.startswith("test") or name == "runTest"


def failing(run):
    """The exception that run raises, in one line with the line of the text that it comes from, or None."""
    try:
        run()
    except BaseException as e:
        said = e.msg if isinstance(e, SyntaxError) else str(e)
        line = e.lineno if isinstance(e, SyntaxError) else 0
        trace = e.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == "<setup>":
                line = trace.tb_lineno
            trace = trace.tb_next
        return " ".join(("%s: %s" % (type(e).__name__, said)).split())[:300] + (" (line %d)" % line if line else "")
    return None


def idleness(body, entry):
    """Why a test in which nothing acts checks nothing, in words for who wrote the task."""
    if any(isinstance(n, ast.If) for n in body):
        return "what stands under if __name__ == '__main__' does not run"
    names = [n.name for n in body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    if "check" in names and not entry:
        return "it defines check and does not call it; name the field with the function that it gets in the parameter entry"
    if names:
        return "it defines %s, in which nothing runs: of what a test defines, functions test_… and methods test… of unittest's classes run" % ", ".join(names)[:200]
    if any(isinstance(n, ast.Expr) and not isinstance(n.value, ast.Constant) for n in body):
        return "it is a value; a list of tests is stored as a list, not as its text"
    return "there is no assert and no call in it"


def reached(module, name):
    return functools.reduce(lambda x, part: getattr(x, part, None), name.split("."), sys.modules.get(module))


def mocked(x):
    mock = sys.modules.get("unittest.mock")
    return mock is not None and isinstance(x, mock.NonCallableMock)


def stub(node):
    """Whether a function or class of the setup is only the head of what the code has to define."""
    if isinstance(node, ast.ClassDef):
        parts = [n for n in node.body if not empty(n)]
        return bool([n for n in parts if not isinstance(n, ast.ClassDef)]) and all(
            isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and stub(n) for n in parts
        )
    return all(empty(n) for n in node.body)


def empty(node):
    if isinstance(node, ast.Raise):
        raised = getattr(node.exc, "func", node.exc)
        return getattr(raised, "id", "") == "NotImplementedError"
    return isinstance(node, ast.Pass) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def main():
    lines, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in 0, 1, 2:
        os.dup2(null, fd)
    sys.modules["tests"] = types.ModuleType("tests")
    return Tests(lines, results, loads(lines.readline().decode()))


side = main()
side.result("ready")
side.grade()
side.result("done")
os._exit(0)
