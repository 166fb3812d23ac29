from agentfly import agent


@agent()
def parse(completion):
    """Every line CALL NAME TEXT is a call, a line ANSWER TEXT the answer."""
    out = {"calls": [], "answer": None, "errors": []}
    for line in completion.split("\n"):
        words = line.split(" ", 2)
        if words[0] == "CALL" and len(words) == 3:
            out["calls"].append({"name": words[1], "arguments": {"expression": words[2]}})
        elif words[0] == "CALL":
            out["errors"].append("a call is CALL NAME TEXT")
        elif words[0] == "ANSWER":
            out["answer"] = line[len("ANSWER "):]
    return out


@agent()
def observe(results):
    return [{"role": "user", "content": "SAW " + r["observation"]} for r in results]


@agent(name="instructions")
def explain(tools):
    return "Tools: " + ", ".join([t["function"]["name"] for t in tools])


@agent
def stops():
    return ["\nSAW"]
