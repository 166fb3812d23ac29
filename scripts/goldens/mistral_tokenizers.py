#!/usr/bin/env python3
"""Writes the tokenizer.json of two Mistral tokenizers from the files in the PyPI package mistral-common.

usage: mistral_tokenizers.py WHEEL FOLDER

  FOLDER/tekken/tokenizer.json                  tekken 240718 (Mistral Nemo), as transformers' MistralConverter does
  FOLDER/mistral_v1/tokenizer.json              Mistral 7B v0.1 (SentencePiece BPE), as the published tokenizer.json is made
  FOLDER/mistral_v1/vocabulary.json             its tokens, scores and types as a GGUF states them

Standard library only.
"""

import base64
import json
import pathlib
import struct
import sys
import zipfile


def byte_letters():
    keep = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    out = {b: chr(b) for b in keep}
    for n, b in enumerate(b for b in range(256) if b not in keep):
        out[b] = chr(256 + n)
    return out


def added(tokens, special=True):
    return [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special} for i, t in tokens]


def document(**parts):
    doc = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    doc.update(parts)
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "ignore_merges": False}
    model.update(doc["model"])
    doc["model"] = model
    return doc


def cuts(token, ids):
    """Every way to cut a token into two tokens, by the ids of the parts."""
    local = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ids and token[i:] in ids]
    return sorted(local, key=lambda p: (ids[p[0]], ids[p[1]]))


# The first special tokens of a tekken file that does not list them; the others are <SPECIAL_n>.
TEKKEN_SPECIALS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]",
                   "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]


def tekken(raw):
    source = json.loads(raw)
    specials = source["config"]["default_num_special_tokens"]
    size = source["config"]["default_vocab_size"] - specials
    ranks = {base64.b64decode(v["token_bytes"]): i for i, v in enumerate(source["vocab"][:size])}
    letters = byte_letters()

    def spell(b):
        return "".join(letters[x] for x in b)

    names = TEKKEN_SPECIALS + ["<SPECIAL_%d>" % i for i in range(len(TEKKEN_SPECIALS), specials)]
    vocab = {t: i for i, t in enumerate(names)}
    vocab.update((spell(t), i + specials) for t, i in ranks.items())
    merges = [[spell(a), spell(b)] for t in ranks if len(t) > 1 for a, b in cuts(t, ranks)]
    return document(
        added_tokens=added(list(enumerate(names))),
        pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": source["config"]["pattern"]}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        model={"ignore_merges": True, "vocab": vocab, "merges": merges})


def varint(b, i):
    v = shift = 0
    while True:
        v |= (b[i] & 0x7F) << shift
        shift += 7
        i += 1
        if b[i - 1] < 0x80:
            return v, i


def fields(b):
    """(number, value) of a protocol buffer message."""
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        kind = key & 7
        if kind == 0:
            v, i = varint(b, i)
        elif kind == 2:
            n, i = varint(b, i)
            v, i = b[i : i + n], i + n
        elif kind == 5:
            v, i = struct.unpack("<f", b[i : i + 4])[0], i + 4
        else:
            v, i = b[i : i + 8], i + 8
        yield key >> 3, v


def sentencepiece(raw):
    """(tokens, scores, types); the types are numbered as in a GGUF."""
    tokens, scores, types = [], [], []
    for number, piece in fields(raw):
        if number != 1:
            continue
        p = {1: b"", 2: 0.0, 3: 1}
        p.update(fields(piece))
        tokens.append(p[1].decode())
        scores.append(p[2])
        types.append(p[3])
    return tokens, scores, types


def llama(tokens, scores, types):
    ids = {t: i for i, t in enumerate(tokens)}
    order = sorted(range(len(tokens)), key=lambda i: -scores[i])
    specials = [(i, t) for i, (t, k) in enumerate(zip(tokens, types)) if k in (2, 3)]
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return document(
        added_tokens=added(specials),
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        post_processor={"type": "TemplateProcessing", "single": list(bos), "pair": list(bos) + [{"Sequence": {"id": "B", "type_id": 1}}],
                        "special_tokens": {"<s>": {"id": "<s>", "ids": [ids["<s>"]], "tokens": ["<s>"]}}},
        decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": ids, "merges": [list(p) for i in order for p in cuts(tokens[i], ids)]})


def main():
    wheel, folder = sys.argv[1:]
    folder = pathlib.Path(folder)

    def write(path, value):
        path = folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")

    with zipfile.ZipFile(wheel) as z:
        write("tekken/tokenizer.json", tekken(z.read("mistral_common/data/tekken_240718.json")))
        tokens, scores, types = sentencepiece(z.read("mistral_common/data/tokenizer.model.v1"))
    write("mistral_v1/tokenizer.json", llama(tokens, scores, types))
    write("mistral_v1/vocabulary.json", {"model": "llama", "tokens": tokens, "scores": scores, "types": types,
                                         "bos": tokens.index("<s>"), "eos": tokens.index("</s>"), "unk": tokens.index("<unk>"), "pad": -1, "add_bos": True})


if __name__ == "__main__":
    main()
