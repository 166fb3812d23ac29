"""A file of the user's: running it as a module, and what its exceptions say."""

import itertools
import linecache
import os
import re
import sys
import traceback
import types

PREFIX = "agentfly_file_"  # of the name of the file's module


def execute(file, source):
    """The module that a file's text makes. Modules beside the file are found."""
    module = types.ModuleType(PREFIX + os.path.splitext(os.path.basename(file))[0])
    module.__file__ = file
    sys.modules[module.__name__] = module
    if os.path.dirname(file):
        sys.path.insert(0, os.path.dirname(file))
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module


def load_error(e, file):
    line = 1
    if isinstance(e, SyntaxError) and e.filename == file:
        return "%d: SyntaxError: %s" % (e.lineno or 1, e.msg)
    for frame in traceback.extract_tb(e.__traceback__):
        if frame.filename == file:
            line = frame.lineno
    text = "%d: %s" % (line, last_line(e))
    if "relative import" in text:
        text += "; the file is no part of a package: write import NAME, its folder is searched"
    if isinstance(e, ModuleNotFoundError) and not str(e.name).startswith("agentfly"):
        text += "; install it for %s, or name the interpreter that has it" % sys.executable
    return text


def last_line(e, depth=0):
    lines = itertools.dropwhile(lambda line: line.startswith("  "), traceback.format_exception_only(type(e), e))  # a SyntaxError's source
    text = " ".join("".join(lines).split())  # with its notes
    inner = getattr(e, "exceptions", ()) if depth < 3 else ()
    if isinstance(inner, tuple) and inner and all(isinstance(one, BaseException) for one in inner):  # a group says nothing by itself
        text += ": " + "; ".join(last_line(one, depth + 1) for one in inner[:4])
    if text.startswith(PREFIX):  # a class of the file's own
        text = text.partition(".")[2]
    if isinstance(e, AssertionError) and not e.args and e.__traceback__:
        frame = traceback.extract_tb(e.__traceback__)[-1]
        text += ": line %d: %s" % (frame.lineno, frame.line)
    return text[:2000]


def unread(line, e):
    """The beginning of a request that Python's JSON cannot read (a number of thousands of digits, hundreds of nested lists, what is no UTF-8): id,
    op and, of an answer, ask come first. Its "unread" says why."""
    show(e)
    id, op, ask = re.match(rb'{"id":(\d+),"op":"(\w+)"(?:,"ask":(\d+))?', line).groups()
    why = "cannot be read (%s)" % last_line(e)
    if op == b"answer":
        return {"op": "answer", "ask": int(ask), "error": "its answer " + why}
    return {"id": int(id), "op": op.decode(), "unread": "the arguments %s; write shorter numbers and nest less" % why}


def show(e):
    """The traceback, for people."""
    try:
        traceback.print_exception(type(e), e, e.__traceback__)
    except Exception:  # the user's code closed or replaced standard error
        pass
