"""A loop with a tool on the openai package: openai_loop.py chat|chatstream|responses|responsesstream."""
import json
import sys

import openai

client, mode, question = openai.OpenAI(), sys.argv[1], "What is 17*23?"
schema = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}


def run(arguments):
    a = json.loads(arguments)
    return str(int(a["a"] * a["b"]))


if mode.startswith("chat"):
    tools = [{"type": "function", "function": {"name": "calculator", "parameters": schema}}]
    messages = [{"role": "system", "content": "You calculate."}, {"role": "user", "content": question}]
    while True:
        if mode == "chat":
            m = client.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message
        else:
            with client.chat.completions.stream(model="policy", messages=messages, tools=tools) as s:
                for _ in s:
                    pass
                m = s.get_final_completion().choices[0].message
        messages.append(m)
        if not m.tool_calls:
            print("FINAL", m.content)
            break
        messages += [{"role": "tool", "tool_call_id": c.id, "content": run(c.function.arguments)} for c in m.tool_calls]
else:
    tools = [{"type": "function", "name": "calculator", "parameters": schema, "strict": False}]
    items = [{"role": "user", "content": question}]
    while True:
        q = dict(model="policy", input=items, tools=tools, instructions="You calculate.")
        if mode == "responses":
            r = client.responses.create(**q)
        else:
            with client.responses.stream(**q) as s:
                for _ in s:
                    pass
                r = s.get_final_response()
        items = items + list(r.output)
        calls = [o for o in r.output if o.type == "function_call"]
        if not calls:
            print("FINAL", r.output_text)
            break
        items += [{"type": "function_call_output", "call_id": o.call_id, "output": run(o.arguments)} for o in calls]
