#!/usr/bin/env python3
"""Writes the goldens of masks/tokenizer: ids and texts by Python `tokenizers` for 2,000 hard strings.

  tokenizer.py                 writes masks/tokenizer/testdata
  tokenizer.py --check FILE NAME   compares a generated tokenizer.json with the golden of NAME (exit status 1 if it differs)

Reads the tokenizers that fetch_tokenizers.sh puts into the cache folder and the GGUF of SmolLM2 that scripts/fetch.py
fetches. Needs: tokenizers==0.23.3, gguf==0.19.0 (scripts/goldens/venv.sh).
"""

import base64
import gzip
import json
import os
import pathlib
import random
import sys

import tokenizers
from tokenizer_strings import CODE, SCRIPTS, strings
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parents[2] / "masks" / "tokenizer" / "testdata"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "agentfly"
PUBLIC = ["qwen3", "llama3_1", "llama2", "deepseek_v3", "gptoss", "gpt4o", "gpt35turbo", "gemma3"]


def write(name, value):
    """Compact JSON, gzip without a time stamp: the same input gives the same file."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    path = OUT / name
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(path.name, path.stat().st_size)


def golden(tokenizer, inputs, seed):
    """ids of every input, and the decoded texts where they are not the input itself."""
    texts = [b.decode(errors="replace") for b in inputs]
    ids = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    decoded, skipped = {}, {}
    for i, (text, x) in enumerate(zip(texts, ids)):
        whole = tokenizer.decode(x, skip_special_tokens=False)
        if whole != text:
            decoded[i] = whole
        short = tokenizer.decode(x, skip_special_tokens=True)
        if short != whole:
            skipped[i] = short
    # random ids decode to broken UTF-8 most of the time; ids outside the vocabulary are left out
    r = random.Random(seed)
    size = tokenizer.get_vocab_size()
    noise = []
    for i in range(200):
        x = [r.randrange(size + 3) if r.random() < 0.7 else r.randrange(min(size, 300)) for _ in range(r.randint(1, 12))]
        noise.append({"ids": x, "skip": i % 2 == 1, "text": tokenizer.decode(x, skip_special_tokens=i % 2 == 1)})
    return {"tokenizers": tokenizers.__version__, "ids": ids, "decoded": decoded, "skipped": skipped, "noise": noise}


def smollm2_vocabulary():
    """The tokenizer keys of the GGUF."""
    import gguf

    files = list((CACHE / "models" / "SmolLM2-135M-Instruct").glob("*.gguf"))
    if not files:
        sys.exit("tokenizer.py: SmolLM2 is missing: python3 scripts/fetch.py model")
    reader = gguf.GGUFReader(files[0])

    def get(key, default=None):
        field = reader.fields.get("tokenizer.ggml." + key)
        return default if field is None else field.contents()

    return {
        "model": get("model"), "pre": get("pre"), "tokens": get("tokens"), "types": [int(t) for t in get("token_type")], "merges": get("merges"),
        "bos": int(get("bos_token_id", -1)), "eos": int(get("eos_token_id", -1)), "unk": int(get("unknown_token_id", -1)),
        "pad": int(get("padding_token_id", -1)), "add_bos": bool(get("add_bos_token", False)),
    }


def smollm2(v):
    """The tokenizer that SmolLM2's own tokenizer.json describes, from the vocabulary of the GGUF."""
    vocab = {t: i for i, t in enumerate(v["tokens"])}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in v["merges"]]))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(v["tokens"], v["types"]) if k == 3])
    return t


CORPUS = SCRIPTS + CODE


def small_byte_level():
    """GPT-2 kind with every flag of an added token, NFC and a template."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens([
        AddedToken("<|im_end|>", special=True, normalized=False), AddedToken("<think>", special=True, normalized=False, rstrip=True),
        AddedToken("</think>", special=True, normalized=False, lstrip=True),
        AddedToken("<tool_call>", special=True, normalized=False, lstrip=True, rstrip=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("ab", normalized=False), AddedToken("e\u0301", normalized=True),
                  AddedToken("\u212b", normalized=False), AddedToken("abab", normalized=False, single_word=True), AddedToken("=-", lstrip=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair=None, special_tokens=[("<s>", 0), ("</s>", 1)])
    return t


def small_prefix_space():
    """add_prefix_space, whole numbers apart, an incomplete alphabet with an unknown token."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS[:3] + CODE, trainers.BpeTrainer(vocab_size=330, special_tokens=["<unk>"], show_progress=False))
    t.add_special_tokens([AddedToken("<|im_end|>", special=True, normalized=False)])
    return t


def small_metaspace(scheme, split, fuse, fallback):
    """Mistral kind: Metaspace pre-tokenizer, unknown characters as bytes or as one token."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=split)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]) if fallback \
        else decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    special = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if fallback else [])
    t.train_from_iterator([s for s in CORPUS[:2] + CODE], trainers.BpeTrainer(
        vocab_size=600 if fallback else 300, special_tokens=special, limit_alphabet=70, show_progress=False))
    doc = json.loads(t.to_str())
    doc["added_tokens"] = [a for a in doc["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(doc))
    t.add_tokens([AddedToken("[INST]"), AddedToken("<tool_call>", rstrip=True, normalized=False)])
    return t


def small_llama2():
    """Llama 2 kind in small: Prepend and Replace normalizers, no pre-tokenizer, added tokens that are normalized."""
    t = small_metaspace("never", False, True, True)
    doc = json.loads(t.to_str())
    doc["pre_tokenizer"] = None
    doc["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    return Tokenizer.from_str(json.dumps(doc))


SMALL = {
    "byte_level": small_byte_level,
    "prefix_space": small_prefix_space,
    "metaspace_first": lambda: small_metaspace("first", False, True, True),
    "metaspace_always": lambda: small_metaspace("always", True, False, False),
    "llama2_small": small_llama2,
}


def check(path, name):
    with gzip.open(OUT / (name + ".golden.json.gz")) as f:
        want = json.load(f)
    with open(path) as f:
        got = golden(Tokenizer.from_str(f.read()), strings(), name)
    bad = [k for k in ("ids", "decoded", "skipped", "noise") if json.loads(json.dumps(got[k])) != want[k]]
    print(path, "equals the golden of", name) if not bad else sys.exit("%s differs from the golden of %s in %s" % (path, name, bad))


def main():
    if sys.argv[1:2] == ["--check"]:
        return check(*sys.argv[2:])
    OUT.mkdir(exist_ok=True)
    inputs = strings()
    write("strings.json.gz", [base64.b64encode(b).decode() for b in inputs])
    for name, make in SMALL.items():
        t = make()
        write(name + ".tokenizer.json.gz", json.loads(t.to_str()))
        write(name + ".golden.json.gz", golden(t, inputs[::4], name))
    v = smollm2_vocabulary()
    write("smollm2.vocabulary.json.gz", v)
    write("smollm2.golden.json.gz", golden(smollm2(v), inputs, "smollm2"))
    for name in PUBLIC:
        path = CACHE / "tokenizers" / name / "tokenizer.json"
        if not path.exists():
            sys.exit("tokenizer.py: %s is missing: scripts/goldens/fetch_tokenizers.sh" % path)
        write(name + ".golden.json.gz", golden(Tokenizer.from_file(str(path)), inputs, name))


if __name__ == "__main__":
    main()
