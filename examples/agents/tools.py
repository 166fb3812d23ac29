"""The tools, the reward and the custom agent of the jobs agents_*.yaml.

agentfly tools schema examples/agents/tools.py
agentfly tools test examples/agents/tools.py
"""

import contextlib
import io

from agentfly import agent, reward, state, tool

COUNTS = {"wheels of a bicycle": "2", "legs of a stool": "3", "strings of a violin": "4", "fingers of a hand": "5"}


@tool(timeout=5)
def python(code: str) -> str:
    """Runs Python and returns what it prints.

    Args:
        code: The program.
    """
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    return out.getvalue().strip()


@tool(deterministic=True)
def lookup(query: str) -> str:
    """Looks a number up.

    Args:
        query: Of what.
    """
    return COUNTS.get(query, "nothing")


@tool(stateful=True)
def act(action: str) -> str:
    """Acts in front of four doors, each with a key of its own.

    Args:
        action: take the NAME door key, or open the NAME door.
    """
    if action.startswith("take the ") and action.endswith(" key"):
        state()["key"] = action[len("take the "):-len(" key")]
        return "2"
    door = action[len("open the "):]
    return "open" if state().get("key") == door else "nothing"


@reward()
def opened(trajectory: dict, door: str) -> dict:
    """1 when the task's door is open at last, 0.2 for its key alone."""
    done = [r["arguments"].get("action") for r in trajectory["results"] if not r["failed"]]
    seen = [r["observation"] for r in trajectory["results"]]
    is_open = any(d == "open the " + door and s == "open" for d, s in zip(done, seen))
    key = "take the " + door + " key" in done
    return {"reward": 1.0 if is_open else 0.2 if key else 0.0, "open": is_open}


# compute EXPRESSION is a call, say ANSWER is the answer.
@agent
def instructions(tools):
    return "Write compute and an expression, or say and the answer."


@agent
def parse(completion):
    word, _, rest = completion.strip().partition(" ")
    if word == "compute" and rest:
        return {"calls": [{"name": "calculator", "arguments": {"expression": rest}}]}
    if word == "say" and rest:
        return {"answer": rest}
    return {"errors": ["write compute and an expression, or say and the answer"]}


@agent
def observe(results):
    return "\n".join("wrong" if r["failed"] else "saw " + r["observation"] for r in results)


def test_python():
    assert python("print(1+2)") == "3"


def test_lookup():
    assert lookup("legs of a stool") == "3"
    assert lookup("legs") == "nothing"


def test_doors():
    state().clear()
    assert act("open the red door") == "nothing"
    assert act("take the red door key") == "2"
    assert act("open the blue door") == "nothing"
    assert act("open the red door") == "open"


def test_opened():
    results = [
        {"arguments": {"action": "take the red door key"}, "observation": "2", "failed": False},
        {"arguments": {"action": "open the red door"}, "observation": "open", "failed": False},
    ]
    assert opened({"results": results}, "red door")["reward"] == 1.0
    assert opened({"results": results[:1]}, "red door")["reward"] == 0.2
    assert opened({"results": results}, "blue door")["reward"] == 0.0


def test_plain():
    assert parse("compute 1+1")["calls"][0]["arguments"] == {"expression": "1+1"}
    assert parse("say 2") == {"answer": "2"}
    assert observe([{"observation": "2", "failed": False}]) == "saw 2"
