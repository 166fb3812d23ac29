import json
import re

from agentfly import tool


@tool()
def extract(text: str, pattern: str):
    """Numbers of a text."""
    return json.dumps(re.findall(pattern, text))
