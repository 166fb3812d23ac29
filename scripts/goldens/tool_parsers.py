"""Write agents/testdata/vllm_parsers.json: what vLLM's own tool parsers return for a table of completions.

usage: tool_parsers.sh, which installs what vLLM's Mistral parser imports and scripts/vllm_install.sh leaves out.
"""

import json
import logging
import pathlib

import vllm
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

logging.disable(logging.CRITICAL)

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Forecasts.", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "limit": {"type": ["number", "null"]},
                       "tags": {"type": "array", "items": {"type": "string"}}, "place": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "clock", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}},
]

# Schemas that say in another way than by `type` what type a value has, and values of them. No $ref but those that point to text: vLLM reads
# every $ref as text.
COMPOSED = [
    ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, ["5", "null", "five"]),
    ({"allOf": [{"type": "integer"}]}, ["5"]),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, ["5", "[1]"]),
    ({"anyOf": [{"allOf": [{"oneOf": [{"type": "array"}]}]}, {"type": "null"}]}, ["[1]", "None"]),
    ({"anyOf": [{"const": "a"}, {"type": "array"}]}, ["a", "[1]"]),
    ({"anyOf": [{"const": 1}, {"type": "null"}]}, ["1"]),
    ({"anyOf": [{}, {"type": "null"}]}, ["90210"]),
    ({"anyOf": [{"$ref": "#/$defs/Zip"}, {"type": "null"}]}, ["90210", "null"]),
    ({"anyOf": [{"enum": [1, 2.5]}, {"type": "boolean"}]}, ["1", "2.5", "true"]),
    ({"type": "str"}, ["90210"]),
    ({"type": "bool"}, ["True"]),
    ({"type": " INTEGER "}, ["5"]),
    ({"type": ["Float", "none"]}, [".5", "none"]),
    ({"type": "date"}, ["5", "May"]),
]
TOOLS += [{"type": "function", "function": {"name": "composed", "description": "Takes anything.", "parameters": {
    "type": "object", "properties": {f"p{i}": schema for i, (schema, _) in enumerate(COMPOSED)}, "$defs": {"Zip": {"type": "string"}}}}}]


class Tokenizer:
    """What a parser asks of a tokenizer when it is given text: the ids of its marks."""

    def __init__(self, marks):
        self.vocab = {mark: i for i, mark in enumerate(marks)}

    def get_vocab(self):
        return dict(self.vocab)

    def __getattr__(self, name):
        raise AttributeError(name)


HERMES = [
    "It is sunny.",
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>',
    'I look.\n<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>\n<tool_call>{"name": "clock", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "clock", "arguments": {}}',
    '<tool_call>{"name": "weather", "arguments": {"city": "Zürich \\"x\\" {"}}</tool_call>',
    '<tool_call>{"name": "clock", "arguments": {',
    "<tool_call>clock</tool_call>",
    "",
]
LLAMA = [
    "It is sunny.",
    '{"name": "weather", "parameters": {"city": "Rome", "days": 2}}',
    '<|python_tag|>{"name": "clock", "parameters": {}}',
    '{"name": "clock", "arguments": {}}',
    '{"name": "weather", "parameters": {"city": "a"}, "arguments": {"city": "b"}}',
    '{"name": "weather", "parameters": {"city": "a; {b}"}}; {"name": "clock", "parameters": {}}',
    'Sure: {"name": "clock", "parameters": {}} done',
    '{"name": "weather", "parameters": {"place": {"a": {"b": [1, {"c": 2}]}}}}',
    '{"capital": "Rome"}',
    '{"name": "John"}',
    '{"name": "weather", "parameters": {"city": "R',
    "{1, 2}",
    "",
]
MISTRAL = [
    "It is sunny.",
    '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome", "days": 2}}]',
    '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "]"}}, {"name": "clock", "arguments": {}}]',
    'I look.[TOOL_CALLS][{"name": "clock", "arguments": {}}]',
    '[TOOL_CALLS]{"name": "clock", "arguments": {}}',
    '[TOOL_CALLS][TOOL_CALLS] [{"name": "clock", "arguments": {}}]',
    '[TOOL_CALLS][{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}]',
    '[TOOL_CALLS][{"name": "clock"',
    "",
]
MISTRAL_11 = [
    "It is sunny.",
    '[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 2}',
    '[TOOL_CALLS]weather{"city": "Rome"}',
    'I look.[TOOL_CALLS]weather[ARGS]{"city": "Rome"}[TOOL_CALLS]clock[ARGS]{}',
    "",
]
QWEN = [
    "It is sunny.",
    "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    "<tool_call><function=clock></function></tool_call>",
    "<function=weather><parameter=city>Rome</parameter></function>",
    "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>",
    "<tool_call>\n<function=weather>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=limit>\n2.50\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=weather>\n<parameter=limit>\nnull\n</parameter>\n<parameter=days>\ntwo\n</parameter>\n</function>\n</tool_call>",
    '<tool_call>\n<function=weather>\n<parameter=tags>\n["a", "b"]\n</parameter>\n<parameter=place>\n{"x": [1, 2]}\n</parameter>\n</function>\n</tool_call>',
    "<tool_call>\n<function=weather>\n<parameter=city>\n\nline 1\n  line 2\n\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=weather>\n<parameter=city>Rome<parameter=days>3</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=other>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
    "",
] + [
    f"<tool_call>\n<function=composed>\n<parameter=p{i}>\n{value}\n</parameter>\n</function>\n</tool_call>"
    for i, (_, values) in enumerate(COMPOSED) for value in values
]
TABLE = [
    ("hermes", "hermes", ["<tool_call>", "</tool_call>"], HERMES),
    ("llama3_json", "llama3_json", ["<|python_tag|>"], LLAMA),
    ("mistral", "mistral", ["[TOOL_CALLS]"], MISTRAL),
    ("mistral", "mistral", ["[TOOL_CALLS]", "[ARGS]"], MISTRAL_11),
    ("qwen3_coder", "qwen3_coder", ["<tool_call>", "</tool_call>", "<think>", "</think>"], QWEN),
]


def main():
    cases = []
    for name, form, marks, texts in TABLE:
        for text in texts:
            request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "x"}], tools=TOOLS)
            request.chat_template_kwargs = {"enable_thinking": False}
            kwargs = {"chat_template_kwargs": {"enable_thinking": False}} if form == "qwen3_coder" else {}
            cls = ToolParserManager.get_tool_parser(name)
            try:
                parser = cls(Tokenizer(marks), request.tools, **kwargs)
            except TypeError:
                parser = cls(Tokenizer(marks), request.tools)
            got = parser.extract_tool_calls(text, request)
            cases.append({
                "format": form, "text": text, "content": got.content,
                "calls": [{"name": c.function.name, "arguments": json.loads(c.function.arguments)} for c in got.tool_calls],
            })
    out = {"vllm": vllm.__version__, "tools": [t["function"] for t in TOOLS], "cases": cases}
    path = pathlib.Path(__file__).parents[2] / "agents/testdata/vllm_parsers.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")
    print(f"{path.name}: {len(cases)} completions, vLLM {vllm.__version__}")


if __name__ == "__main__":
    main()
