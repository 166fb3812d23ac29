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


def call(function, *args):
    result = function(*args)
    if hasattr(result, "__await__"):  # of an async test
        import asyncio

        async def wait():
            await result

        asyncio.run(wait())


def whole(test):
    """Runs a test and what it defines. What has the same name in the code, or in a test before, is another object: it does not stand in for it."""
    before = dict(names)
    execute(test)
    case = getattr(sys.modules.get("unittest"), "TestCase", ())
    for name, value in list(names.items()):
        if before.get(name) is value:
            continue
        if name.startswith("test_") and callable(value):
            call(value)
        elif name == "check" and request["entry"]:
            call(value, names[request["entry"]])
        elif isinstance(value, type) and issubclass(value, case):
            result = sys.modules["unittest"].TestResult()
            sys.modules["unittest"].defaultTestLoader.loadTestsFromTestCase(value).run(result)
            if not result.wasSuccessful():
                raise AssertionError(name)


try:
    execute(request["setup"])
    execute(request["code"])
except BaseException:
    os._exit(1)
if os.getpid() != process:
    os._exit(0)
for number, test in enumerate(request["tests"]):
    passed(number, whole, test)
os._exit(0)
