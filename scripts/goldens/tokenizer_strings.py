"""The 2,000 hard strings of the tokenizer goldens, as bytes (some are broken UTF-8). Deterministic; no packages."""

import random

SCRIPTS = """
The quick brown fox jumps over the lazy dog, doesn't it? We've SAID she'll pay $1,234.56 (approx.) on 2024-02-29!
Größenwahn und Übermut: Straße, Fuß, ẞ; dœuvre naïve façade cœur Ça va? ¿Qué pasó, señor Núñez? São João ação
Příliš žluťoučký kůň úpěl ďábelské ódy. Zażółć gęślą jaźń. Árvíztűrő tükörfúrógép. Đặng Thị Hồng Nhung tiếng Việt
Съешь же ещё этих мягких французских булок, да выпей чаю. Щастя, їжак, ґанок, Ђорђе Његош
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· ᾳ ᾼ ΐ ΰ ς Σ ἀρχὴ ἦν ὁ λόγος
השפן האכיל קטניות לחלום בְּרֵאשִׁית בָּרָא אֱלֹהִים
نص حكيم له سر قاطع وذو شأن عظيم ١٢٣٤٥٦٧٨٩٠ بِسْمِ ٱللَّهِ ٱلرَّحْمَٰنِ ﷽ ۱۲۳۴ فارسی می‌خواهم
सभी मनुष्यों को गौरव और अधिकारों १२३४५ क़ ख़ ज़ क्षत्रिय
আমার সোনার বাংলা ১২৩৪৫ ড় ঢ় য়
ਸਾਰੇ ਮਨੁੱਖ ੧੨੩ બધા માણસો ૧૨૩ ସମସ୍ତ ମଣିଷ ୧୨୩
எல்லா மனிதர்களும் ௧௨௩ కొ అందరు మనుషులు ౧౨౩ ಎಲ್ಲಾ ಮಾನವರೂ ೧೨೩ എല്ലാ മനുഷ്യരും ൧൨൩ සියලු මිනිසුන් ෧෨
มนุษย์ทั้งหลายเกิดมามีอิสระ ๑๒๓ ມະນຸດທຸກຄົນ ໑໒໓ လူတိုင်း ၁၂၃ មនុស្សទាំងអស់ ១២៣ བོད་སྐད ༡༢༣
人人生而自由,在尊严和权利上一律平等。他們賦有理性和良心,並應以兄弟關係的精神相對待。一二三〇㊀㍿𠮷𠀀𪚥
すべての人間は、生まれながらにして自由であり。カタカナ ガギグゲゴ ｶﾞｷﾞ ゟ ヿ か゚ は゛
모든 인간은 태어날 때부터 자유로우며 각 각 ᄀᆨ ᄒᆞᆫ글 ㄱㅏ
ყველა ადამიანი იბადება თავისუფალი ᲐᲑᲒ Ⴀ Բոլոր մարդիկ ծնվում են ፩፪፫ ሁሉም ሰዎች ᎠᎡᎢ ᐃᓄᒃᑎᑐᑦ ᠮᠣᠩᠭᠣᠯ
Math: ∀x∈ℝ ∑ᵢ₌₁ⁿ xᵢ² ≤ ½∫f(x)dx → ∞ ≠ ∅ ⅷ Ⅷ ② ⑽ ㉈ 𝒜𝓫𝕔 𝟘𝟙𝟚 ℵ₀ Å Å K K Ω Ω µ μ
Currency: $ € £ ¥ ₹ ₿ ₺ ¢ ؋ ៛; marks: ™ © ® ℗ § ¶ † ‡ • … – — ‘’ “” «» ‹› ‰ ′ ″ ⁄
ﬁ ﬂ ﬃ ſt ﬆ ŉ ǆ ǅ Ǆ ǳ ĳ ß ẞ İ ı i̇ ﷺ ﬀ Ａｂｃ１２３！ ㎏ ㏂
👋🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵🇺🇸 ❤️ ☺︎ 1️⃣ #️⃣ 👩🏿‍🚀 🧑‍🤝‍🧑 🫠 🫨 🪿 🙂‍↕️ 🐦‍🔥 ©️
it's IT'S we'Re they'VE I'm I'M he'Ll she'D 'ſ 'S's ''s 'tis ’s ’T don't'd've x'lls 'l 'r 'v 'e rock'n'roll O'Reilly
""".strip().split("\n")

CODE = [
    "def f(x: int) -> int:\n    \"\"\"Doc.\"\"\"\n    return x ** 2 if x > 0 else -x  # comment\n\n\nprint(f(10))\n",
    "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Printf(\"%d\\t%q\\n\", i, `a`)\n\t}\n}\n",
    "#include <stdio.h>\nint main(void){ int *p=&x; return p->y ? (a<<3)|~b : c&&!d||e; }\r\n/* end */\r\n",
    "SELECT a.id, COUNT(*) AS n FROM t1 a LEFT JOIN t2 b ON a.id=b.id WHERE a.x<>'it''s' GROUP BY 1 HAVING n>=5;",
    "{\"name\": \"calculator\", \"arguments\": {\"expression\": \"123*(45+6)/7.5e-3\", \"unicode\": \"\\u00e9\"}}\n",
    "<html><body class=\"a b\"><p>&nbsp;&lt;x&gt;</p>\n\n<!-- c --></body></html>",
    "$ ls -la | grep '^d' | awk '{print $9}' && echo \"${HOME}/x\" > /dev/null 2>&1; cd ../..\n",
    "x=1;y=2;z=x+y*3/4%5^6&7|8<<9>>10>>>11!=12==13===14<=15>=16&&17||18??19?.20=>21",
    "https://example.org/a/b?c=d&e=f#g user@example.com 192.168.0.1:8080 2024-05-06T07:08:09Z C:\\Users\\x\\y.txt",
    "class Foo<T extends Bar> { private readonly fooBarBAZ_qux42: Map<string, T[]> = new Map(); get XMLHttpRequest() {} }",
    "\\begin{equation}\n  \\frac{\\partial f}{\\partial x} = \\sum_{i=1}^{n} \\alpha_i x_i^2 \\tag{1}\n\\end{equation}",
    "| a | b |\n|---|:-:|\n| 1 | 2 |\n\n- [x] done\n- [ ] todo\n\n```go\nfmt.Println()\n```\n***bold*** _it_ ~~no~~\n",
    "0 1 12 123 1234 12345 123456 1234567 3.14159 1e10 0xDEADBEEF 1_000_000 1,000,000 ١٢٣٤ १२३४ ²³ ½ Ⅻ 一二三",
    "CamelCaseHTTPServer snake_case_name SCREAMING_CASE kebab-case-name iPhone15ProMax x2y3 A1B2 mRNA pH McDonald's",
]

SPECIALS = """<|endoftext|> <|im_start|> <|im_end|> <s> </s> <unk> <|begin_of_text|> <|end_of_text|> <|eot_id|>
<|start_header_id|> <|end_header_id|> <|python_tag|> <think> </think> <tool_call> </tool_call> <tool_response>
<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁calls▁begin｜> <|fim_prefix|> <|endofprompt|>
<|start|> <|message|> <|channel|> <|call|> <bos> <eos> <start_of_turn> <end_of_turn> <pad> <0x41> <0xE2> [INST] [/INST]
<repo_name> <file_sep> <jupyter_start> <empty_output> <|vision_start|> <|im_start <|im_en <|im_end|>> <<|im_end|> <|| |>""".split()

SPACES = [" ", "  ", "   ", "    ", "        ", "\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", "\t\t", "\u00a0",
          "\u3000", "\u2003", "\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u1680", "\u200b", "\u202f", "\ufeff", "\u180e",
          "▁", "▁▁", " " * 16, " " * 17, " " * 31, " " * 64, " " * 100, "\n" * 30, "\t" * 20]

MARKS = [chr(c) for c in (0x300, 0x301, 0x302, 0x303, 0x308, 0x30A, 0x323, 0x327, 0x328, 0x331, 0x338, 0x345, 0x34F, 0x35C, 0x3099,
         0x309A, 0x5B0, 0x5BC, 0x5C1, 0x64B, 0x651, 0x670, 0x93C, 0x94D, 0x9BC, 0xE38, 0xE48, 0x0F71, 0x0F72, 0x1DCE, 0x20D0, 0xFE20,
         0x1E8D0, 0x11046, 0x1D165, 0x1D16E, 0x0898, 0x1AC0, 0x10EAC, 0x10F4E)]

BROKEN = [b"\xff", b"\xfe\xff", b"\x80", b"\xbf\x80", b"\xc0\xaf", b"\xc1\xbf", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82(", b"\xe0\x80\xaf",
          b"\xe0\xa0", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
          b"\xf8\x88\x80\x80\x80", b"\xfc\x84", b"\xef\xbf\xbe", b"\xef\xbf\xbf", b"\x00", b"\x7f", b"\x1b[31m", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"]

FIXED = ["", " ", "\n", "a", "é", "e\u0301", "👋", "'", "'s", "’", ".", "\u0000", "\ufffd", "Hello, world!", " Hello", "Hello ", "\u1112\u1161\u11ab",
         "\u212b", "\u2126", "\u0958", "\ufb1d", "\U0001d15e", "a\u0315\u0300\u05ae\u0300b", "\u0344", "\u0f73", "\u0f75", "\u0340\u0341\u0343",
         "q\u0307\u0323", "Q" + "\u0301" * 60, "word" * 60, "a" * 500, "ab" * 300, "1" * 100, "!" * 100, "=-" * 60, "é" * 80, "中" * 90, "ſ's'ſ"]


def random_word(r):
    kind = r.randrange(8)
    if kind == 0:
        return "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randint(1, 12)))
    if kind == 1:
        return "".join(r.choice("ABCdefGHIjklÄÖÜßéÈñçøÅ'’-_") for _ in range(r.randint(1, 12)))
    if kind == 2:
        return str(r.randrange(10 ** r.randint(1, 12)))
    if kind == 3:
        return "".join(r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(r.randint(1, 6)))
    if kind == 4:
        base = r.choice("aeioucnszAEIOUkK가ᄀか१ا")
        return base + "".join(r.choice(MARKS) for _ in range(r.randint(1, 6)))
    if kind == 5:
        return r.choice(r.choice(SCRIPTS).split())
    if kind == 6:
        start = r.choice([0x80, 0x250, 0x370, 0x400, 0x590, 0x900, 0xE00, 0x1000, 0x1D00, 0x2000, 0x2190, 0x2E80, 0x3040, 0x4E00, 0xA000, 0xAC00,
                          0xE000, 0xF900, 0xFB00, 0x10000, 0x11000, 0x12000, 0x16800, 0x1D100, 0x1D400, 0x1E000, 0x1F300, 0x1F900, 0x20000, 0x30000, 0xE0000])
        return "".join(chr(start + r.randrange(0x200)) for _ in range(r.randint(1, 4)))
    out = ""
    while not out:
        c = r.randrange(0x110000)
        if not 0xD800 <= c < 0xE000:
            out = chr(c)
    return out


def strings():
    r = random.Random(20261121)
    out = [s.encode() for s in FIXED + SCRIPTS + CODE + SPECIALS + SPACES]
    out += BROKEN
    while len(out) < 2000:
        kind = len(out) % 10
        if kind < 3:  # words of any kind, any white space between
            parts = []
            for _ in range(r.randint(1, 10)):
                parts.append(random_word(r))
                parts.append(r.choice(SPACES) if r.random() < 0.3 else " " if r.random() < 0.8 else "")
            out.append("".join(parts).encode())
        elif kind < 5:  # a cut of a script or of code
            s = r.choice(SCRIPTS + CODE)
            a = r.randrange(len(s))
            out.append(s[a : a + r.randint(1, 60)].encode())
        elif kind < 7:  # special tokens in text
            parts = []
            for _ in range(r.randint(1, 4)):
                parts.append(r.choice(SPECIALS))
                if r.random() < 0.7:
                    parts.append(r.choice(SPACES) if r.random() < 0.4 else random_word(r))
                if r.random() < 0.4:
                    parts.append(" " + random_word(r))
            r.random() < 0.5 and parts.reverse()
            out.append("".join(parts).encode())
        elif kind == 7:  # broken UTF-8
            b = bytearray()
            for _ in range(r.randint(1, 5)):
                b += r.choice(BROKEN) if r.random() < 0.6 else bytes([r.randrange(256)])
                b += random_word(r).encode()
                if r.random() < 0.2:
                    del b[-1:]
            out.append(bytes(b))
        elif kind == 8:  # white space and line ends around anything
            parts = []
            for _ in range(r.randint(2, 6)):
                parts.append(r.choice(SPACES) * r.randint(1, 3))
                parts.append(r.choice(["", "", "a", "1", ".", "'s", "é", "中", "//", "\u0301"]))
            out.append("".join(parts).encode())
        else:  # any code points
            chars = []
            for _ in range(r.randint(1, 12)):
                c = r.randrange(r.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]))
                chars.append(chr(c) if not 0xD800 <= c < 0xE000 else "\ufffd")
            out.append("".join(chars).encode())
    return out
