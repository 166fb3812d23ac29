"""Runs Python code that comes as JSON lines on standard input, in one namespace, and answers with JSON lines on standard output.

A request is {"number": N, "code": TEXT, "limit": BYTES}, its answer {"number": N, "output": TEXT, "error": TEXT}. The first answer, of number
0, says that the interpreter is ready. What the code writes, also by way of descriptors and child processes, is captured.
"""
import ast
import io
import json
import linecache
import os
import sys
import threading
import traceback
import types


KEPT = 1 << 18  # bytes of the beginning and of the end; no limit is above twice that


class Capture:
    """Reads what is written to descriptors 1 and 2. Of too much the middle is left out."""

    def __init__(self):
        self.source, self.target = os.pipe()
        self.lock = threading.Lock()
        self.found = threading.Event()
        self.data, self.dropped, self.marker = bytearray(), 0, None
        threading.Thread(target=self.pump, daemon=True).start()

    def pump(self):
        while True:
            data = os.read(self.source, 1 << 16)
            with self.lock:
                self.data += data
                if self.marker and self.marker in self.data[-len(data) - 64:]:
                    self.found.set()
                elif len(self.data) > 4 * KEPT:
                    self.dropped += len(self.data) - 2 * KEPT
                    del self.data[KEPT:-KEPT]

    def redirect(self):
        os.dup2(self.target, 1)
        os.dup2(self.target, 2)

    def end(self, limit):
        self.redirect()  # the code may have closed them
        with self.lock:
            self.found.clear()
            self.marker = b"\0" + os.urandom(16)
        os.write(1, self.marker)
        self.found.wait()
        with self.lock:
            data, _, rest = bytes(self.data).partition(self.marker)
            dropped, self.dropped, self.data, self.marker = self.dropped, 0, bytearray(rest), None
        if not dropped and len(data) <= limit:
            return data.decode("utf-8", "replace")
        head, tail = data[:limit // 2], data[-(limit // 2):]
        dropped += len(data) - len(head) - len(tail)
        return "%s\n[%d bytes left out]\n%s" % (head.decode("utf-8", "replace"), dropped, tail.decode("utf-8", "replace"))


def explain(error, name, limit):
    """The last lines of a traceback; frames of libraries are left out, and of too much text the middle."""
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith("<call "):
            continue
        where = "line %d" % (frame.lineno or 0)
        if frame.filename != name:
            where = frame.filename[1:-1] + ", " + where
        if frame.name != "<module>":
            where += ", in " + frame.name
        lines.append("  " + where + (": " + frame.line if frame.line else ""))
    lines = lines[-4:]
    for line in traceback.format_exception_only(type(error), error):
        lines.append(line.replace('File "%s", ' % name, "").rstrip("\n"))
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n[%d characters left out]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def execute(code, name, namespace):
    """Runs code; the value of a last expression is shown."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    tree = ast.parse(code, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, name, "exec"), namespace)
    if last is not None:
        value = eval(compile(last, name, "eval"), namespace)
        if value is not None:
            namespace["_"] = value
            print(repr(value))


def open_stream():
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", "replace")


def usable(stream):
    """Tells whether a stream is neither closed nor detached."""
    try:
        return not stream.closed
    except ValueError:
        return False


def main():
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    capture = Capture()
    capture.redirect()
    stream = open_stream()
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["python"]
    sys.path.append(os.getcwd())
    main_process = os.getpid()
    os.write(answers, b'{"number": 0}\n')
    for line in requests:
        request = json.loads(line)
        sys.stdin = open(0, closefd=False)  # the code may have closed it, exit() does
        if not usable(stream):
            stream = open_stream()
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = stream
        error, name = "", "<call %d>" % request["number"]
        try:
            execute(request["code"], name, module.__dict__)
        except BaseException as e:
            error = explain(e, name, request["limit"])
        if os.getpid() != main_process:  # a child of the code's own came back here
            stream.flush()
            os._exit(0)
        for s in sys.stdout, stream:
            try:
                s.flush()
            except Exception:
                pass
        answer = memoryview(json.dumps({"number": request["number"], "output": capture.end(request["limit"]), "error": error}).encode() + b"\n")
        while answer:
            answer = answer[os.write(answers, answer):]


main()
