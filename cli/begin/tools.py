"""The tools of job.yaml. Try one without a job:

agentfly tools call tools.py calculator '{"expression": "47 + 85"}'
agentfly tools test tools.py
"""

import ast
import operator

from agentfly import tool

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    raise ValueError("write numbers with + - * between them")


@tool(timeout=5, deterministic=True)
def calculator(expression: str) -> str:
    """Computes an expression.

    Args:
        expression: Numbers with + - * between them.
    """
    return str(value(ast.parse(expression.strip(), mode="eval").body))


def test_calculator():
    assert calculator("47 + 85") == "132"
    assert calculator("90 - 4 * 2") == "82"
