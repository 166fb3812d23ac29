#!/usr/bin/env python3
"""Writes the goldens of masks/tokenizer: ids and texts by Python `tokenizers` for 2,000 hard strings.

  tokenizer.py                 writes masks/tokenizer/testdata
  tokenizer.py NAME...         writes only these, as `pieces`, `nfc`, `small`, `smollm2` and the names of PUBLIC
  tokenizer.py --check FILE NAME   compares a generated tokenizer.json with the golden of NAME (exit status 1 if it differs)

Reads the tokenizers that fetch_tokenizers.sh puts into the cache folder and the GGUF of SmolLM2 that scripts/fetch.py
fetches. Needs: tokenizers==0.23.3, gguf==0.19.0 (scripts/goldens/venv.sh).
"""

import base64
import gzip
import hashlib
import itertools
import json
import os
import pathlib
import random
import sys

import tokenizers
from tokenizer_strings import CODE, SCRIPTS, strings
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parents[2] / "masks" / "tokenizer" / "testdata"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "agentfly"
PUBLIC = ["qwen3", "llama3_1", "llama2", "deepseek_v3", "gptoss", "gpt4o", "gpt35turbo", "gemma3", "tekken", "mistral_v1"]

CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113"
    "\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
# The expressions of the known pre-tokenizers, as their files state them.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "digits3": r"\p{N}{1,3}",
    "cjk": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "deepseek_v3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "line_end": "[\r\n]",
    "space_letters": r"\s?\p{L}+",
    "space_punct": r"\s?\p{P}+",
    "spaces_at_end": r"\s+$",
    "cjk_hangul": "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    "cased": r"\s?[" + CASED + "]+",
    "marks": "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
}
# One or more of every kind of character that an expression tells apart.
ALPHABET = " \n\r\ta" "slBZ\u01c5\u02b0\u4e2d\u0301" "1\u0663.$'/\x00\u3000\u017f"


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


def small_steps(patterns):
    """DeepSeek Coder and LLM kinds: one Split after the other."""
    def make():
        t = Tokenizer(models.BPE())
        t.normalizer = normalizers.Sequence([])
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(PATTERNS[p]), "isolated") for p in patterns]
            + [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
        t.train_from_iterator(CORPUS, trainers.BpeTrainer(
            vocab_size=900, special_tokens=["<｜begin▁of▁sentence｜>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        return t
    return make


SMALL = {
    "deepseek_llm": small_steps(["line_end", "cased", "marks", "spaces_at_end", "cjk_hangul"]),
    "deepseek_coder": small_steps(["line_end", "space_letters", "space_punct", "cjk_hangul"]),
    "byte_level": small_byte_level,
    "prefix_space": small_prefix_space,
    "metaspace_first": lambda: small_metaspace("first", False, True, True),
    "metaspace_always": lambda: small_metaspace("always", True, False, False),
    "llama2_small": small_llama2,
}


def digest(parts):
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


class Random:
    """A generator that the Go tests repeat."""

    def __init__(self):
        self.state = 1

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def pieces():
    """Where each expression cuts: every string of three characters of ALPHABET, random ones of eight, and every code
    point among others."""
    out = []
    for name, pattern in PATTERNS.items():
        split = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str

        def ends(text):
            return ",".join(str(o[1]) for _, o in split(text)) + ";"

        threes = [digest(ends(first + "".join(rest)) for rest in itertools.product(ALPHABET, repeat=2)) for first in ALPHABET]
        r = Random()
        eights = [digest(ends("".join(ALPHABET[r.below(len(ALPHABET))] for _ in range(8))) for _ in range(500)) for _ in range(20)]
        points = [digest(ends("".join(f"{c}a {c}{c}1{c}\n{c}.'{c} A{c}\t{c}" for c in map(chr, range(start, start + 0x40)) if not "\ud800" <= c < "\ue000"))
                         for start in range(block, block + 0x1000, 0x40)) for block in range(0, 0x110000, 0x1000)]
        out.append({"name": name, "pattern": pattern, "threes": threes, "eights": eights, "points": points})
    return {"alphabet": ALPHABET, "patterns": out}


def nfc_pool():
    """The code points that normalization knows, by unicode.txt, and a few it does not."""
    pool = {0x61, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x0898, 0x10EAC, 0x1AC0, 0x1E2EC, 0x11938}
    for line in (OUT.parent / "unicode.txt").read_text().splitlines():
        kind, *v = line.split()
        v = [int(x, 16) for x in v] if kind in "kdp" else []
        pool.update(range(v[0], v[1] + 1) if kind == "k" else v)
    return sorted(pool)


def nfc():
    """Digests of 50,000 random strings, a thousand each, and of every code point between marks."""
    normalize = normalizers.NFC().normalize_str
    pool = nfc_pool()
    r = Random()
    randoms = [digest(normalize("".join(chr(pool[r.below(len(pool))]) for _ in range(1 + r.below(10)))) + "\n" for _ in range(1000)) for _ in range(50)]
    points = [digest(normalize("a\u0301" + chr(c) + "\u0323\u0301") + "\n" for c in range(start, start + 0x1000) if not 0xD800 <= c < 0xE000)
              for start in range(0, 0x110000, 0x1000)]
    return {"pool": len(pool), "randoms": randoms, "points": points}


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
    wanted = sys.argv[1:] or ["pieces", "nfc", "small", "smollm2"] + PUBLIC
    OUT.mkdir(exist_ok=True)
    inputs = strings()
    write("strings.json.gz", [base64.b64encode(b).decode() for b in inputs])
    if "pieces" in wanted:
        write("pieces.json.gz", pieces())
    if "nfc" in wanted:
        write("nfc.json.gz", nfc())
    if "small" in wanted:
        for name, make in SMALL.items():
            t = make()
            write(name + ".tokenizer.json.gz", json.loads(t.to_str()))
            write(name + ".golden.json.gz", golden(t, inputs[::4], name))
    if "smollm2" in wanted:
        v = smollm2_vocabulary()
        write("smollm2.vocabulary.json.gz", v)
        write("smollm2.golden.json.gz", golden(smollm2(v), inputs, "smollm2"))
    for name in PUBLIC:
        if name not in wanted:
            continue
        path = CACHE / "tokenizers" / name / "tokenizer.json"
        if not path.exists():
            sys.exit("tokenizer.py: %s is missing: scripts/goldens/fetch_tokenizers.sh" % path)
        write(name + ".golden.json.gz", golden(Tokenizer.from_file(str(path)), inputs, name))


if __name__ == "__main__":
    main()
