package gpython

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLintNamesWhatIsMissingWithLineAndColumn(t *testing.T) {
	for source, want := range map[string][]string{
		"x = 1\ny = f\"{x}\"":           {"2:5: gpython has no f-strings; use \"…\" % (…) or \"…\".format(…); or use runtime: cpython"},
		"x = ['é', rF'']":               {"1:11: gpython has no f-strings; use \"…\" % (…) or \"…\".format(…); or use runtime: cpython"},
		"\nif (n := 3):\n    pass":      {"2:7: gpython has no assignment expression :=; assign before; or use runtime: cpython"},
		"class A:\n    x: int = 1\n":    {"2:5: gpython has no annotated assignment; leave the type of x out; or use runtime: cpython"},
		"a.b: int = 1":                  {"1:1: gpython has no annotated assignment; leave the type of a out; or use runtime: cpython"},
		"async def f():\n    await g()": {"1:1: gpython has no async def; write a plain function; or use runtime: cpython", "2:5: gpython has no await; call a plain function; or use runtime: cpython"},
		"n = 1_000":                     {"1:5: gpython has no _ in numbers; write 1000; or use runtime: cpython"},
		"def f(a, /, b):\n    pass":     {"1:10: gpython has no positional-only arguments; leave / out; or use runtime: cpython"},
		"x = [1, *y]":                   {"1:9: gpython cannot unpack with * in a list, a set or a dict; use + or a loop; or use runtime: cpython"},
		"x = {**y}":                     {"1:6: gpython cannot unpack with ** in a list, a set or a dict; use + or a loop; or use runtime: cpython"},
		"x = {1: 2}":                    {"1:6: gpython's dicts have string keys only; write \"1\" or use a list of pairs; or use runtime: cpython"},
		"x = a @ b":                     {"1:7: gpython has no operator @; write the sum; or use runtime: cpython"},
		"s %= 2":                        {"1:3: gpython computes %= wrongly for strings; write x = x % y; or use runtime: cpython"},
		"def f(x: list[str], y: int | None = None): pass":               {"1:10: gpython has no list[…]; write List[…], from typing import List; or use runtime: cpython", "1:28: gpython has no type X | None; write Optional[X], from typing import Optional; or use runtime: cpython"},
		"class A:\n    @property\n    def x(self): pass":                {"2:5: a decorator inside a class or a function is not supported by gpython; call it after the definition; or use runtime: cpython"},
		"match x:\n    case 1: pass":                                    {"1:1: gpython has no statement match; use if and elif; or use runtime: cpython"},
		"x = issubclass(A, B)":                                          {"1:5: gpython has no function issubclass; write it out; or use runtime: cpython"},
		"from agentfly import x\nimport math, json as j":                {"2:14: ModuleNotFoundError: No module named 'json'; install it for CPython and use runtime: cpython: gpython has binascii, builtins, glob, math, os, string, sys, tempfile, time, typing"},
		"from dataclasses import (dataclass,\n  field)":                 {"1:6: ModuleNotFoundError: No module named 'dataclasses'; install it for CPython and use runtime: cpython: gpython has binascii, builtins, glob, math, os, string, sys, tempfile, time, typing"},
		"import os.path":                                                {"1:8: ModuleNotFoundError: No module named 'os.path'; install it for CPython and use runtime: cpython: gpython has binascii, builtins, glob, math, os, string, sys, tempfile, time, typing"},
		"import agentfly.tools":                                         {"1:8: import agentfly.tools: gpython cannot import a part of a package; write from agentfly.tools import …; or use runtime: cpython"},
		"import math\ndef near(a): return abs(math.nothere(a))":         {"2:30: gpython's math has no nothere; write it out; or use runtime: cpython"},
		"import os, math as m\nx = os.path.join('a')\ny = m.comb(4, 2)": {"2:8: gpython's os has no path; write it out; or use runtime: cpython", "3:7: gpython's math has no comb; write it out; or use runtime: cpython"},
		"x = 'é'.encode()":                                              {"1:9: gpython has no method encode; write it out; or use runtime: cpython"},
		"class A:\n    def __eq__(self, o):\n        return True\n    def __len__(self):\n        return 0": {"2:9: gpython does not call __eq__; give the method another name, and call it; or use runtime: cpython"},
		"def f(:\n    pass": {"1: SyntaxError: invalid syntax"},
	} {
		found, _ := lint(source, t.TempDir())
		require.Equal(t, want, found, source)
	}
}

func TestLintAcceptsWhatWorks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "helper.py"), nil, 0o600))
	for _, source := range []string{
		"# f\"x\" := async\nx = 'async f\"\" :='\n", "match = 1\nmatch.x = 2\nprint(match)", "x = {'a': 1, 'b': [1, 2]}", "d = {}\nd['a'] = 1\nx = d['a'] % 3",
		"def f(x: int = 1, *a, **k) -> str:\n    return g(*a, **k) * 2 ** 3 / 4", "if x:\n    y = 1\nelse:\n    y = lambda: 2", "from typing import List\nx = List[int]",
		"def format(x):\n    return x\nformat(1)", "x.format(1)\nx = [1, 2][0:1]", "@tool(\n    name='x')\ndef f():\n    pass", "a, *b = c", "try:\n    x = 1\nfinally:\n    pass",
		"x = [1 if a else 2 for b in c if d]", "\"\"\"doc\nx: int = 1\n\"\"\"\n", "x = (\n  1,\n  2)\n", "x = a | b", "s = r'\\\\'", "x = 3.0.is_integer()\ny = 1e5.is_integer() or 0x1f.bit_length", "import math, os as o\nx = math.gcd(4, 6) + math.inf\no.environ", "class A:\n    def encode(self):\n        return 1\nA().encode()", "x = 1 + \\\n    2",
		"import time\n@tool\ndef book(day, time: str):\n    return time.split(':')[0]", "import string\ndef norm(string):\n    return string.lower()",
		"import math as m\nfor m in x:\n    m.append(1)", "import os\nx = [os.strip() for n, os in y]", "import time\ntime = 'x'\ntime.strip()", "import time\nf = lambda time: time.strip()",
	} {
		found, siblings := lint(source, dir)
		require.Empty(t, found, source)
		require.Empty(t, siblings)
	}
	found, siblings := lint("import helper\nfrom helper import x, y\nimport math", dir)
	require.Empty(t, found)
	require.Equal(t, []string{"helper", "helper"}, siblings)
}

func TestRewriteKeepsLines(t *testing.T) {
	p := rewrite("import a\n\n@one\n@two(\n    x=1,  # a remark\n)\ndef f(x=1):\n    return '%s' % x\n\n\ny = f(2)")
	require.Equal(t, "import a\n\n    \n     \n                    \n \ndef f(x=1):\n    return '%s'  * _agentfly_modulo *  x\n\n\ny = f(2)\n"+
		"f = two(\n    x=1,  # a remark\n)(f)\nf = one(f)\n", p.source)
	require.Equal(t, map[string]int{"f": 3}, p.at)
	require.Equal(t, []int{3, 3, 3, 3}, p.lines)
	require.Equal(t, []int{11, 3, 3, 16}, []int{p.line(11), p.line(12), p.line(15), p.line(16)})
}

func FuzzLint(f *testing.F) {
	files, err := filepath.Glob("../testdata/suite/*.py")
	require.NoError(f, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(source))
	}
	f.Add("\\\n@")
	f.Add("x = {(1:\n@\n@a")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, source string) {
		lint(source, dir)
		at := 0
		for _, token := range scan(source) {
			require.GreaterOrEqual(t, token.start, at)
			require.Greater(t, token.end, token.start)
			at = token.end
		}
		require.LessOrEqual(t, at, len(source))
		rewrite(source)
	})
}

func FuzzFormat(f *testing.F) {
	f.Add("%5.2f %(a)s %% %d", "{:>5} {0!r:*^9} {{}} {x:,}")
	f.Fuzz(func(_ *testing.T, percent, braces string) {
		values, err := decode([]byte(`[1, "a", 2.5, null]`))
		if err != nil {
			panic(err)
		}
		_, _ = formatPercent(percent, values) // no panic is what is asked for
		_, _ = formatBraces(braces, nil, nil)
	})
}
