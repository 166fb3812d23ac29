"""llguidance's masks, asked for a line at a time on stdin (grammar/peer_test.go).

A line is JSON: {"schema": text} or {"regex": text} begins a completion, {"take": id} goes on with a token. The answer is
{"mask": base64 of a bit a token, "forced": base64 of the bytes that must follow, "end": whether the completion may end} or
{"error": text}.
"""

import base64
import json
import sys

from llguidance import LLMatcher, LLTokenizer

tokenizer = LLTokenizer(open(sys.argv[1], encoding="utf-8").read())
matcher = None
print(json.dumps({"size": tokenizer.vocab_size, "eos": tokenizer.eos_token}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "take" in asked:
        matcher.consume_token(asked["take"])
    elif "regex" in asked:
        matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_regex(asked["regex"]))
    else:
        matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(asked["schema"]))
    if matcher.is_error():
        print(json.dumps({"error": matcher.get_error()}), flush=True)
        continue
    # A stopped matcher allows the end alone, which compute_bitmask would tell as an error.
    mask = b"" if matcher.is_stopped() else matcher.compute_bitmask()
    # Where the form forces the next bytes, the mask has the tokenizer's own token for them alone.
    forced = b"" if matcher.is_stopped() else matcher.compute_ff_bytes()
    answer = {"mask": base64.b64encode(mask).decode(), "forced": base64.b64encode(forced).decode(), "end": matcher.is_accepting()}
    print(json.dumps(answer), flush=True)
