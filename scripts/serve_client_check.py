#!/usr/bin/env python3
"""Checks of a running `agentfly serve` with the official openai client: URL MODEL on the command line.

Every reply is held against another one of the same server (whole against streamed, text against ids) or against a
property that OpenAI's reference states; nothing here is a recorded output of the server itself.
"""
import asyncio
import json
import sys

import openai

URL, MODEL = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
USER = [{"role": "user", "content": "Name three colours. Use a few emoji."}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
checks = []


def check(f):
    checks.append(f)
    return f


def refused(kind, **request):
    try:
        client.chat.completions.create(model=request.pop("model", MODEL), messages=request.pop("messages", USER), **request)
    except kind as e:
        assert e.body["message"] and e.body["code"] == e.status_code, e.body
        return e
    raise AssertionError(f"{request} was not refused")


@check
def models():
    names = [m.id for m in client.models.list()]
    assert MODEL in names, names
    assert client.models.retrieve(MODEL).id == MODEL


@check
def chat_whole_and_streamed_agree():
    kw = dict(model=MODEL, messages=USER, max_tokens=48, seed=7, temperature=0.8, top_p=0.95)
    whole = client.chat.completions.create(**kw)
    text = whole.choices[0].message.content
    assert text and whole.choices[0].message.role == "assistant"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    parts, finish, usage = [], None, None
    for chunk in client.chat.completions.create(**kw, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for c in chunk.choices:
            parts.append(c.delta.content or "")
            finish = c.finish_reason or finish
    assert "".join(parts) == text, (parts, text)
    assert finish == whole.choices[0].finish_reason and usage.completion_tokens == whole.usage.completion_tokens
    assert len(parts) > 5, "it was streamed"
    again = client.chat.completions.create(**kw)
    assert again.choices[0].message.content == text, "the same seed gives the same text"


@check
def logprobs():
    r = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=12, seed=1, logprobs=True, top_logprobs=5)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens
    for t in content:
        assert t.logprob <= 0 and len(t.top_logprobs) == 5
        values = [a.logprob for a in t.top_logprobs]
        assert values == sorted(values, reverse=True) and t.logprob <= values[0] + 1e-6
    text = b"".join(bytes(t.bytes) for t in content).decode(errors="replace").replace("<|im_end|>", "")
    assert text == r.choices[0].message.content, (text, r.choices[0].message.content)
    greedy = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=12, temperature=0, logprobs=True, top_logprobs=1)
    for t in greedy.choices[0].logprobs.content:
        assert t.top_logprobs[0].token == t.token and abs(t.top_logprobs[0].logprob - t.logprob) < 1e-6


@check
def several_choices():
    r = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=16, n=4, seed=3, temperature=1.2)
    texts = [c.message.content for c in r.choices]
    assert [c.index for c in r.choices] == [0, 1, 2, 3] and len(set(texts)) > 1, texts
    one = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=16, seed=5, temperature=1.2)
    assert one.choices[0].message.content == texts[2], "choice i of seed s is the choice of seed s + i"


@check
def completions_text_and_ids():
    prompt = "The capital of France is"
    extra = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    r = client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0, logprobs=0, extra_body=extra)
    c = r.choices[0]
    assert "Paris" in c.text, c.text
    assert c.logprobs.tokens == [f"token_id:{i}" for i in c.token_ids] and len(c.logprobs.token_logprobs) == 8
    by_ids = client.completions.create(model=MODEL, prompt=c.prompt_token_ids, max_tokens=8, temperature=0)
    assert by_ids.choices[0].text == c.text
    both = client.completions.create(model=MODEL, prompt=[prompt, "Two plus two is"], max_tokens=8, temperature=0)
    assert both.choices[0].text == c.text and both.choices[1].text != c.text
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0, stream=True))
    assert streamed == c.text


@check
def echo_and_prompt_logprobs():
    prompt = "One, two, three, four,"
    greedy = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1, temperature=0, logprobs=0).choices[0]
    r = client.completions.create(model=MODEL, prompt=prompt + greedy.text, max_tokens=1, temperature=0, echo=True, logprobs=1)
    c = r.choices[0]
    assert c.text.startswith(prompt + greedy.text) and c.logprobs.token_logprobs[0] is None
    assert len(c.logprobs.tokens) == r.usage.total_tokens
    assert c.logprobs.tokens[-2] == greedy.logprobs.tokens[0]
    assert abs(c.logprobs.token_logprobs[-2] - greedy.logprobs.token_logprobs[0]) < 1e-3, "a token scores what it was sampled with"
    assert "".join(c.logprobs.tokens) == c.text and c.logprobs.text_offset[1] == len(c.logprobs.tokens[0])


@check
def stop_strings():
    free = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=40, temperature=0).choices[0].message.content
    stop = free[len(free) // 2:len(free) // 2 + 3]
    r = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=40, temperature=0, stop=[stop])
    assert r.choices[0].message.content == free[:free.index(stop)] and r.choices[0].finish_reason == "stop"
    assert r.choices[0].stop_reason == stop
    parts = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=40, temperature=0, stop=stop, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in parts) == free[:free.index(stop)]


@check
def replies_in_a_form():
    schema = {"type": "object", "additionalProperties": False, "required": ["name", "red", "warm"], "properties": {
        "name": {"type": "string", "maxLength": 20}, "red": {"type": "integer", "minimum": 0, "maximum": 255}, "warm": {"type": "boolean"}}}
    asked = {"type": "json_schema", "json_schema": {"name": "colour", "strict": True, "schema": schema}}
    kw = dict(model=MODEL, messages=[{"role": "user", "content": "Describe a colour as JSON."}], max_tokens=120, response_format=asked)
    for seed in range(6):
        r = client.chat.completions.create(**kw, seed=seed, logprobs=True)
        said = json.loads(r.choices[0].message.content)
        assert r.choices[0].finish_reason == "stop" and sorted(said) == ["name", "red", "warm"], said
        assert 0 <= said["red"] <= 255 and isinstance(said["warm"], bool) and len(said["name"]) <= 20, said
        parts = client.chat.completions.create(**kw, seed=seed, stream=True)
        assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == r.choices[0].message.content
    for choice, names in (("required", {"get_weather"}), ({"type": "function", "function": {"name": "get_weather"}}, {"get_weather"})):
        for seed in range(4):
            r = client.chat.completions.create(model=MODEL, messages=USER, tools=TOOLS, tool_choice=choice, seed=seed, max_tokens=200)
            calls = r.choices[0].message.tool_calls
            assert r.choices[0].finish_reason in ("tool_calls", "length"), r
            if r.choices[0].finish_reason == "tool_calls":
                assert calls and {c.function.name for c in calls} <= names
                assert all(set(json.loads(c.function.arguments)) <= {"city"} for c in calls), calls
    refused(openai.BadRequestError, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array", "uniqueItems": True}}})


@check
def tools():
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    calls = None
    for seed in range(12):  # a small model calls now and then
        kw = dict(model=MODEL, messages=messages, tools=TOOLS, max_tokens=64, seed=seed, temperature=0.7)
        r = client.chat.completions.create(**kw)
        content, got, finish = "", [], None
        for chunk in client.chat.completions.create(**kw, stream=True):
            for c in chunk.choices:
                content += c.delta.content or ""
                finish = c.finish_reason or finish
                for t in c.delta.tool_calls or []:
                    got.append((t.function.name, t.function.arguments))
        m = r.choices[0].message
        assert content == (m.content or "") and finish == r.choices[0].finish_reason
        assert got == [(t.function.name, t.function.arguments) for t in m.tool_calls or []]
        assert ("tool_calls" == finish) == bool(got) or finish == "length"
        for name, arguments in got:
            assert isinstance(json.loads(arguments), dict)
        calls = m.tool_calls or calls
        if calls:
            follow = messages + [m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny, 21 C"}]
            assert client.chat.completions.create(model=MODEL, messages=follow, tools=TOOLS, max_tokens=8).choices
            break
    print("tools:", f"called {calls[0].function.name}{calls[0].function.arguments}" if calls else "the model made no call in 12 tries")
    none = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=16)
    assert not none.choices[0].message.tool_calls


@check
def errors():
    refused(openai.NotFoundError, model="nobody")
    assert refused(openai.BadRequestError, temperature=-1).status_code == 400
    assert refused(openai.BadRequestError, logit_bias={"5": 3}).body["param"] == "logit_bias"
    long = client.chat.completions.create(model=MODEL, messages=USER, max_tokens=1 << 20, stop=[" "])  # lowered to the context
    assert long.choices[0].finish_reason == "stop", long
    refused(openai.BadRequestError, max_tokens=0)
    refused(openai.BadRequestError, messages=[])
    refused(openai.BadRequestError, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


@check
def many_at_once():
    async def main():
        async with openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0) as c:
            kw = dict(model=MODEL, messages=USER, max_tokens=16, temperature=1.0)
            rs = await asyncio.gather(*(c.chat.completions.create(**kw, seed=i % 8) for i in range(32)))
            texts = [r.choices[0].message.content for r in rs]
            assert all(texts[i] == texts[i % 8] for i in range(32)), "a request gives the same beside any others"
    asyncio.run(main())


for f in checks:
    f()
    print("ok", f.__name__)
print(f"{len(checks)} checks passed with openai {openai.__version__}")
