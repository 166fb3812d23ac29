#!/usr/bin/env python3
"""Write rewards/testdata/qa.json: exact match and F1 of random answers, as SQuAD's evaluate-v1.1.py and HotpotQA's hotpot_evaluate_v1.py
define them: lower case, ASCII punctuation out, the words a, an, the out, white space collapsed; tokens counted with repetition; yes, no
and noanswer earn an F1 only when both are the same. Right answers that normalise to nothing are left out: there AgentFly differs.

    scripts/goldens/qa_scores.py             # needs Python alone
"""

import json
import pathlib
import random
import re
import string
from collections import Counter

WORDS = ["the", "a", "an", "A", "The", "Paris", "paris,", "New", "York", "U.S.A.", "yes", "no", "noanswer", "1,234", "it's", "theory", "an-other",
         "Ångström", "ångström", "“the”", "naïve", "日本", "x_y", "co-op", "42", "42.", "(the)", "ÉTÉ", "a\u00a0b", "c\x1cd", "\t", "!", "..."]


def normalize(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(answer, gold):
    a, g = normalize(answer), normalize(gold)
    if a != g and {a, g} & {"yes", "no", "noanswer"}:
        return 0.0
    given, right = a.split(), g.split()
    common = sum((Counter(given) & Counter(right)).values())
    if common == 0:
        return 0.0
    p, r = common / len(given), common / len(right)
    return 2 * p * r / (p + r)


rng = random.Random(1)
cases = []
while len(cases) < 400:
    gold = " ".join(rng.choices(WORDS, k=rng.randint(1, 5)))
    words = gold.split(" ")
    rng.shuffle(words)
    answer = " ".join(words[: rng.randint(0, len(words))] + rng.choices(WORDS, k=rng.randint(0, 2)))
    if normalize(gold):
        cases.append({"gold": gold, "answer": answer, "normal": normalize(answer), "em": float(normalize(answer) == normalize(gold)), "f1": f1(answer, gold)})
out = pathlib.Path(__file__).resolve().parents[2] / "rewards" / "testdata" / "qa.json"
out.parent.mkdir(exist_ok=True)
out.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
print(f"{len(cases)} answers, {sum(c['em'] for c in cases):.0f} exact, {sum(0 < c['f1'] < 1 for c in cases)} in part")
