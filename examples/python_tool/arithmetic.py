"""A tool and a reward in plain Python. Try them without a job:

agentfly tools schema examples/python_tool/arithmetic.py
agentfly tools call examples/python_tool/arithmetic.py calculator '{"expression": "2+3"}'
agentfly tools test examples/python_tool/arithmetic.py
"""

import ast
import operator

from agentfly import reward, tool

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    raise ValueError("write numbers with + - * / between them")


@tool(timeout=5, deterministic=True, idempotent=True)
def calculator(expression: str) -> str:
    """Computes an expression.

    Args:
        expression: Numbers with + - * / between them.
    """
    return str(value(ast.parse(expression, mode="eval").body))


@reward()
def solved(final_response: str, answer: str, steps: list, trajectory: dict) -> dict:
    """0.8 for the right answer after the right calls, 0.2 for the right calls."""
    observed = [r["observation"] for r in trajectory["results"] if not r["failed"]]
    called = sum(step in observed for step in steps) / len(steps)
    right = final_response == answer and called == 1
    return {"reward": 0.8 * right + 0.2 * called, "right": right, "called": called}


def test_calculator():
    assert calculator("347 + 589") == "936"
    assert calculator("2*(3+4)") == "14"


def test_calculator_refuses_names():
    try:
        calculator("__import__('os')")
    except ValueError as e:
        assert "write numbers" in str(e)
    else:
        assert False, "it must refuse what is no arithmetic"


def test_solved():
    results = [{"observation": "4", "failed": False}]
    assert solved("4", "4", ["4"], {"results": results})["reward"] == 1.0
    assert solved("5", "4", ["4"], {"results": results})["reward"] == 0.2
    assert solved("4", "4", ["4"], {"results": []})["reward"] == 0.0
