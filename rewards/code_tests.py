"""Runs tests on code. Both come as JSON on standard input; for every test that passed a line with its number is written, after a mark that
the code does not know. What the code itself writes goes nowhere."""
import json
import os
import sys

request = json.load(sys.stdin)
results = os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
for fd in 0, 1, 2:
    os.dup2(null, fd)
mark, process = request.pop("mark"), os.getpid()
names = {"__name__": "solution"}


def passed(number, run, *args):
    try:
        run(*args)
    except BaseException:
        return
    if os.getpid() == process:
        os.write(results, ("%s %d\n" % (mark, number)).encode())


def execute(code):
    exec(compile(code, "<tests>", "exec"), names)


try:
    execute(request["setup"])
    execute(request["code"])
except BaseException:
    os._exit(1)
if os.getpid() != process:
    os._exit(0)
for number, test in enumerate(request["tests"]):
    before = set(names)

    def whole():
        execute(test)
        for name in [name for name in names if name.startswith("test_") and name not in before]:
            names[name]()
        if request["entry"] and "check" in names and "check" not in before:
            names["check"](names[request["entry"]])

    passed(number, whole)
os._exit(0)
