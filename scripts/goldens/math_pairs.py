#!/usr/bin/env python3
"""Write rewards/mathequal/testdata/pairs.json: pairs of answers, the verdict expected, and what an oracle says of them.

    scripts/goldens/math_pairs.sh            # from anywhere; makes the environment that this file needs

The pairs and the expected verdicts stand in math_pairs.txt, written by hand. The oracle is math-verify 0.9.0 (latex2sympy2_extended,
SymPy): verify(parse(gold), parse(answer)) with formulas within $…$, and text with words also as it is; one True counts. A pair of which the
oracle says otherwise than expected must carry a reason; one that carries a reason without need is an error too.

Needs: math-verify.
"""

import json
import logging
import pathlib
import re
import sys

from math_verify import parse, verify

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parents[1] / "rewards" / "mathequal" / "testdata" / "pairs.json"
logging.disable(logging.CRITICAL)


def oracle(gold, answer):
    def forms(s):  # out of plain text the oracle takes the last number, so only what has words or spaces is also given as it is
        if "$" in s.replace("\\$", "") or s.startswith(("\\(", "\\[")):
            return [s]
        return [f"${s}$"] + ([s] if re.search(r"[A-Za-z]{3}|%|\d [\dA-Za-z]", s) and not set("\\^_{=<>") & set(s) else [])

    for g in forms(gold):
        for a in forms(answer):
            try:
                if verify(parse(g), parse(a)):
                    return True
            except Exception:
                pass
    return False


pairs, problems = [], []
for number, line in enumerate((HERE / "math_pairs.txt").read_text().splitlines(), 1):
    if not line.strip() or line.startswith("#"):
        continue
    text, _, reason = line.partition(" ## ")
    gold, found, answer = text[2:].partition(" ;; ")
    if line[:2] not in ("= ", "! ") or not found:
        sys.exit(f"math_pairs.txt:{number}: not a pair: {line}")
    expected, says = line[0] == "=", oracle(gold, answer)
    if (expected != says) != bool(reason):
        problems.append(f"math_pairs.txt:{number}: expected {expected}, the oracle says {says}, reason {reason!r}: {text}")
    pairs.append({"gold": gold, "answer": answer, "equal": expected, "oracle": says, **({"reason": reason} if reason else {})})
print("\n".join(problems))
if problems:
    sys.exit(f"{len(problems)} pairs need a look")
OUT.parent.mkdir(parents=True, exist_ok=True)
OUT.write_text("[\n" + ",\n".join(json.dumps(p, ensure_ascii=False) for p in pairs) + "\n]\n")
differ = sum(p["equal"] != p["oracle"] for p in pairs)
print(f"{len(pairs)} pairs, {sum(p['equal'] for p in pairs)} of them equal; the oracle differs in {differ}, each with a reason")
