from agentfly import tool


@tool(timeout=2.5, max_tokens=100, idempotent=True, deterministic=True)
def lookup(key: str):
    return key


@tool(terminal=True)
def finish(answer: str):
    return answer


@tool(schema={"type": "object", "properties": {"q": {"type": "string", "minLength": 1}}, "required": ["q"]})
def given(q):
    return q


@tool(status="terminal", max_length=5)
def last(text: str):
    return text


@tool(auto_register=False)
def hidden():
    return "hidden"
