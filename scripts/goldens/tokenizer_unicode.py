#!/usr/bin/env python3
"""Writes masks/tokenizer/unicode.txt: the character tables that Python `tokenizers` really uses.

Its parts carry different Unicode versions (the regex engine behind Split and ByteLevel, the Rust standard library
behind Digits, the regex crate behind single_word, an old normalization crate behind NFC), so the tables are asked of
the library itself, code point by code point, and not of any Unicode edition.

Needs: tokenizers==0.23.3. Run: python scripts/goldens/tokenizer_unicode.py
"""

import pathlib
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[2] / "masks" / "tokenizer" / "unicode.txt"
CODEPOINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHUNK = 4096

# Bit names are those of unicode.go.
CLASSES = [
    (1, r"[\p{Lu}\p{Lt}]"),  # upper
    (2, r"\p{Ll}"),  # lower
    (4, r"[\p{Lm}\p{Lo}]"),  # other letter
    (8, r"\p{M}"),  # mark
    (16, r"\p{N}"),  # number
    (32, r"\p{P}"),  # punctuation
    (64, r"\p{S}"),  # symbol
    (128, r"\s"),  # space
]
NUMERIC = 256  # char::is_numeric, of Digits
WORD = 512  # \w of the regex crate, of single_word


def removed(splitter):
    """The code points that a splitter with behaviour "removed" takes away."""
    out = set()
    for i in range(0, len(CODEPOINTS), CHUNK):
        part = CODEPOINTS[i : i + CHUNK]
        kept = set()
        for piece, _ in splitter.pre_tokenize_str("".join(map(chr, part))):
            kept.update(piece)
        out.update(c for c in part if chr(c) not in kept)
    return out


def masks():
    mask = dict.fromkeys(CODEPOINTS, 0)
    for bit, pattern in CLASSES:
        for c in removed(pre_tokenizers.Split(Regex(pattern), "removed")):
            mask[c] |= bit
    letter = removed(pre_tokenizers.Split(Regex(r"\p{L}"), "removed"))
    assert letter == {c for c in CODEPOINTS if mask[c] & 7}, "the letter classes do not add up"
    digits = pre_tokenizers.Digits(individual_digits=True)
    word = pre_tokenizers.Whitespace()
    for c in CODEPOINTS:
        # "a" and c part exactly if c is a digit; they stay together exactly if c is a word character
        if len(digits.pre_tokenize_str("a" + chr(c))) == 2:
            mask[c] |= NUMERIC
        got = [p for p, _ in word.pre_tokenize_str("a" + chr(c))]
        if got == ["a" + chr(c)]:
            mask[c] |= WORD
    return mask


def runs(values):
    """(first, last, value) of consecutive code points with one value other than 0."""
    out = []
    for c in CODEPOINTS:
        v = values.get(c, 0)
        if v == 0:
            continue
        if out and out[-1][1] == c - 1 and out[-1][2] == v:
            out[-1][1] = c
        else:
            out.append([c, c, v])
    return out


def normalization():
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    full = {}
    for c in CODEPOINTS:
        if 0xAC00 <= c < 0xD7A4:
            continue  # Hangul is arithmetic
        d = nfd(chr(c))
        if d != chr(c):
            full[c] = d
    # A combining class never changes once it is assigned, so it is enough to know which code points the library
    # knows to have one: those that change places with a mark of a higher or a lower class.
    high, low = "\u0345", "\u0334"  # classes 240 and 1
    ccc = {}
    for c in CODEPOINTS:
        k = unicodedata.combining(chr(c))
        if k == 0 or c in full:
            continue
        after = nfd("a" + high + chr(c)) == "a" + chr(c) + high
        before = nfd("a" + chr(c) + low) == "a" + low + chr(c)
        if after or before:
            ccc[c] = k
    compose = []
    for c in CODEPOINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            a, b = (int(p, 16) for p in parts)
            if nfc(chr(a) + chr(b)) == chr(c):
                compose.append((a, b, c))
    return full, ccc, compose


def main():
    lines = [
        "# Written by scripts/goldens/tokenizer_unicode.py from Python tokenizers " + tokenizers.__version__ + ".",
        "# c FIRST LAST MASK: character classes, bits as in unicode.go. k FIRST LAST CLASS: canonical combining class.",
        "# d CODEPOINT PARTS...: full canonical decomposition. p A B C: A and B compose to C. All numbers are hexadecimal.",
    ]
    lines += ["c %x %x %x" % tuple(r) for r in runs(masks())]
    full, ccc, compose = normalization()
    lines += ["k %x %x %x" % tuple(r) for r in runs(ccc)]
    lines += ["d %x %s" % (c, " ".join("%x" % ord(x) for x in d)) for c, d in sorted(full.items())]
    lines += ["p %x %x %x" % t for t in compose]
    OUT.write_text("\n".join(lines) + "\n")
    print(OUT, len(lines), "lines")


if __name__ == "__main__":
    main()
