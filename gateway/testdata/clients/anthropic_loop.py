"""A loop with a tool on the anthropic package: anthropic_loop.py plain|stream|runner."""
import sys

import anthropic

client, mode = anthropic.Anthropic(), sys.argv[1]
messages = [{"role": "user", "content": "What is 17*23?"}]
if mode == "runner":
    @anthropic.beta_tool
    def calculator(a: float, b: float) -> str:
        """Multiplies.

        Args:
            a: first
            b: second
        """
        return str(int(a * b))

    print("FINAL", client.beta.messages.tool_runner(model="policy", max_tokens=256, tools=[calculator], messages=messages).until_done().content[-1].text)
    sys.exit()
schema = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
tools = [{"name": "calculator", "description": "Multiplies.", "input_schema": schema}]
while True:
    q = dict(model="policy", max_tokens=256, system="You calculate.", tools=tools, messages=messages)
    if mode == "stream":
        with client.messages.stream(**q) as s:
            for _ in s:
                pass
            m = s.get_final_message()
    else:
        m = client.messages.create(**q)
    messages.append({"role": "assistant", "content": m.content})
    uses = [b for b in m.content if b.type == "tool_use"]
    if not uses:
        print("FINAL", m.content[-1].text)
        break
    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": b.id, "content": str(int(b.input["a"] * b.input["b"]))} for b in uses]})
