#!/usr/bin/env python3
"""Write tools/dense/testdata/wordllama.json: unit vectors of the package wordllama 0.4.0.post1, for hard and plain texts.

usage: sentence.py     (needs wordllama==0.4.0.post1, in an environment of its own)
"""
import json
import pathlib
import shutil
import tempfile

import wordllama
from wordllama import WordLlama

TEXTS = [
    "The cat sat on the mat.",
    "A dog chased the cat, and the cat ran.",
    "Which city is the capital of France?",
    "Paris is the capital and most populous city of France.",
    "x",
    " leading and trailing ",
    "two  spaces\nand a line\tand a tab",
    "Zürich, naïve, 東京, Москва, 🐈 and \u0301 alone",
    "<s> is a special token </s>",
    "3.14159 * 2 == 6.28318; f(x) -> y",
    "word " * 300,
]

with tempfile.TemporaryDirectory() as cache:  # the package looks for its tokenizer in a folder that it does not have
    home = pathlib.Path(wordllama.__file__).parent / "tokenizers"
    for name in ("tokenizer", "tokenizers"):
        shutil.copytree(home, pathlib.Path(cache) / name)
    model = WordLlama.load(disable_download=True, cache_dir=cache)
rows = [[float(f"{x:.8g}") for x in model.embed(t, norm=True)[0]] for t in TEXTS]
out = pathlib.Path(__file__).parents[2] / "tools" / "dense" / "testdata" / "wordllama.json"
out.parent.mkdir(exist_ok=True)
out.write_text(json.dumps({"texts": TEXTS, "vectors": rows}, ensure_ascii=True) + "\n")
