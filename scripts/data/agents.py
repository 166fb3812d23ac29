"""Writes examples/agents/KIND/model: examples/tiny/model with the words of another kind of agent.

usage: python3 scripts/data/agents.py

The 22 tokens of the tiny model are four questions, their four calls, their four answers, what stands around an observation, and the
digits 2 to 5. Each kind of agent writes calls and answers in its own way, so each model has its own tokenizer.json; the other files,
and the random weights, which know no words, are links to those of examples/tiny/model.
"""

import json
import pathlib

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SUMS = ["1+1", "1+2", "2+2", "2+3"]
THINGS = ["wheels of a bicycle", "legs of a stool", "strings of a violin", "fingers of a hand"]
DOORS = ["red door", "blue door", "green door", "white door"]

# kind: what stands before and after an observation; questions; calls; answers
KINDS = {
    "react": (
        "Observation: ", "Error", SUMS,
        ["Thought: I compute.\nAction: calculator\nAction Input: " + s for s in SUMS],
        ["Thought: I know.\nFinal Answer: %d" % n for n in range(2, 6)],
    ),
    "code": (
        "```output\n", "\n```", SUMS, ["```python\nprint(%s)\n```" % s for s in SUMS], ["<answer>%d</answer>" % n for n in range(2, 6)],
    ),
    "search_r1": (
        "<information>", "</information>", THINGS, ["<search>%s</search>" % t for t in THINGS], ["<answer>%d</answer>" % n for n in range(2, 6)],
    ),
    "action": (
        "open", "nothing", DOORS, ["<action>take the %s key</action>" % d for d in DOORS], ["<action>open the %s</action>" % d for d in DOORS],
    ),
    "custom": ("saw ", "wrong", SUMS, ["compute " + s for s in SUMS], ["say %d" % n for n in range(2, 6)]),
}


def main():
    tiny = EXAMPLES / "tiny/model"
    tokenizer = json.loads((tiny / "tokenizer.json").read_text())
    for kind, (before, after, questions, calls, answers) in KINDS.items():
        folder = EXAMPLES / "agents" / kind / "model"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ["config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors"]:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(pathlib.Path("../../../tiny/model") / name)
        words = dict(enumerate([before, after] + questions + calls + answers, start=8))
        for token in tokenizer["added_tokens"]:
            token["content"] = words.get(token["id"], token["content"])
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n")


if __name__ == "__main__":
    main()
