package rewards

import (
	"strings"
	"testing"

	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

// Tests that were stored as the JSON text of their list are refused before a run: Python takes the text for a value, and any code would pass.
func TestCodeTestsAsJSONText(t *testing.T) {
	w := codeReward(t, nil)
	for name, tests := range map[string]any{
		"MBPP's test_list":    `["assert f(1) == 2", "assert f(2) == 4"]`,
		"APPS's input_output": "\n" + `{"inputs": ["1\n"], "outputs": ["2\n"]}` + "\n",
		"pairs":               `[{"input": "1\n", "output": "2\n"}]`,
		"an empty list":       `[]`,
		"within a list":       []any{`{"input": "1\n", "output": "2\n"}`},
	} {
		t.Run(name, func(t *testing.T) {
			task := trajectory.Task{ID: "t", Fields: map[string]any{"tests": tests}}
			err := CheckTask(w, task)
			require.EqualError(t, err, `task "t": the field "tests" holds a JSON list or object as text, which any code would pass; `+
				`store the list itself in the task: of Python texts, or of {input, output}`)
			_, scored := w.Score(t.Context(), Input{Task: task, Trajectory: answered("def f(n): return 'wrong'")})
			require.Equal(t, err, scored)
		})
	}
}

// A test that any code passes that runs is an error of its task, which says what would check; it paid every trajectory.
func TestCodeTestsThatCheckNothing(t *testing.T) {
	defines := " in which nothing runs: of what a test defines, functions test_… and methods test… of unittest's classes run"
	for name, c := range map[string]struct {
		tests any
		entry string
		want  string
	}{
		"HumanEval without entry": {tests: "METADATA = {}\n\ndef check(candidate):\n    assert candidate(1) == 2\n", want: "test 1 passes with any code that runs: it defines check and does not call it; name the field with the function that it gets in the parameter entry"},
		"check with annotations":  {tests: "from typing import Callable\ndef check(candidate: Callable) -> None:\n    assert candidate(1) == 2\n", want: "test 1 passes with any code that runs: it defines check and does not call it; name the field with the function that it gets in the parameter entry"},
		"an empty check":          {tests: "def check(candidate):\n    pass\n", entry: "f", want: "test 1 passes with any code that runs: it defines check," + defines},
		"a pytest class":          {tests: "class TestF:\n    def test_f(self):\n        assert f(1) == 2\n", want: "test 1 passes with any code that runs: it defines TestF," + defines},
		"a derived pytest class":  {tests: "class TestF(object):\n    def test_f(self):\n        assert f(1) == 2\n", want: "test 1 passes with any code that runs: it defines TestF," + defines},
		"unittest without tests":  {tests: "import unittest\nclass T(unittest.TestCase):\n    def f(self):\n        self.assertEqual(f(1), 2)\n", want: "test 1 passes with any code that runs: it defines T," + defines},
		"another name":            {tests: "import math\ndef testF():\n    assert f(1) == 2\n", want: "test 1 passes with any code that runs: it defines testF," + defines},
		"an empty function":       {tests: "def test_f():\n    \"\"\"Tests f.\"\"\"\n", want: "test 1 passes with any code that runs: it defines test_f," + defines},
		"the main guard":          {tests: "if __name__ == \"__main__\":\n    assert f(1) == 2\n", want: "test 1 passes with any code that runs: what stands under if __name__ == '__main__' does not run"},
		"a comment":               {tests: "# assert f(1) == 2\n", want: "test 1 passes with any code that runs: there is no assert and no call in it"},
		"a docstring":             {tests: "'''\n>>> f(1)\n2\n'''\n", want: "test 1 passes with any code that runs: there is no assert and no call in it"},
		"the text of a list":      {tests: "['assert f(1) == 2', 'assert f(-1) == -2']", want: "test 1 passes with any code that runs: it is a value; a list of tests is stored as a list, not as its text"},
		"one of a list":           {tests: []any{"assert f(1) == 2", ""}, want: "test 2 passes with any code that runs: there is no assert and no call in it"},
		"nothing prepared":        {tests: []any{"import math", "pi = 3"}, want: "test 2 passes with any code that runs: there is no assert and no call in it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := codeReward(t, map[string]any{"entry": "entry"})
			if c.entry == "" {
				w = codeReward(t, nil)
			}
			task := trajectory.Task{ID: "t", Fields: map[string]any{"tests": c.tests, "entry": c.entry}}
			_, err := w.Score(t.Context(), Input{Task: task, Trajectory: answered("def f(n): return 'wrong'")})
			require.EqualError(t, err, `task "t": the field "tests": `+c.want)
		})
	}
}

// A test that is no Python, and a setup that raises, fail every code: an error of the task, which says what and in which line. They paid nothing, in
// silence.
func TestCodeTestsThatFailAnyCode(t *testing.T) {
	for name, c := range map[string]struct {
		tests any
		setup string
		want  string
	}{
		"no Python":            {"assert f(1) == 2\nassert f(2) ==\n", "", `the field "tests": test 1 fails with any code: SyntaxError: invalid syntax (line 2)`},
		"one of a list":        {[]any{"assert f(1) == 2", "return f"}, "", `the field "tests": test 2 fails with any code: SyntaxError: 'return' outside function (line 1)`},
		"an indent":            {"  assert f(1) == 2\nassert f(1) == 2", "", `the field "tests": test 1 fails with any code: IndentationError: unexpected indent (line 1)`},
		"a zero byte":          {"assert f(1) == 2 \x00", "", `the field "tests": test 1 fails with any code: `},
		"a setup, no Python":   {"assert f(1) == 2", "import", `the field "setup": it fails before any code: SyntaxError: `},
		"a module is missing":  {"assert f(1) == 2", "import math\n\nimport no_such_module\n", `the field "setup": it fails before any code: ModuleNotFoundError: No module named 'no_such_module' (line 3)`},
		"a setup raises":       {"assert f(1) == 2", "def g():\n    raise ValueError('first\\nsecond')\ng()", `the field "setup": it fails before any code: ValueError: first second (line 2)`},
		"a setup ends Python":  {"assert f(1) == 2", "raise SystemExit(3)", `the field "setup": it fails before any code: SystemExit: 3 (line 1)`},
		"a setup asks for f":   {"assert f(1) == 2", "f(1)", `the field "setup": it fails before any code: NameError: name 'f' is not defined (line 1)`},
		"too deep for a parse": {strings.Repeat("(", 10000), "", `the field "tests": test 1 fails with any code: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := trajectory.Task{ID: "t", Fields: map[string]any{"tests": c.tests, "setup": c.setup}}
			_, err := codeReward(t, map[string]any{"setup": "setup"}).Score(t.Context(), Input{Task: task, Trajectory: answered("def f(n): return 2 * n")})
			require.ErrorContains(t, err, `task "t": `+c.want)
		})
	}
}

// A test in which anything could fail is taken as it is, however it is written: a right answer passes it.
func TestCodeTestsThatCheckSomehow(t *testing.T) {
	for name, c := range map[string]struct {
		tests any
		entry string
	}{
		"check called":            {tests: "def check(candidate):\n    assert candidate(1) == 2\n\ncheck(f)\n"},
		"check called later":      {tests: []any{"def check(candidate):\n    assert candidate(1) == 2\n", "check(f)"}},
		"check with entry":        {tests: "METADATA = {}\n\ndef check(candidate):\n    assert candidate(1) == 2\n", entry: "f"},
		"no function but a call":  {tests: "f(1)"},
		"a loop":                  {tests: "for n in range(3):\n    assert f(n) == 2 * n\n"},
		"a with statement":        {tests: "import contextlib\nwith contextlib.suppress(KeyError):\n    assert f(1) == 2\n"},
		"a condition":             {tests: "if f(1) != 2:\n    raise ValueError\n"},
		"a try statement":         {tests: "try:\n    f()\nexcept TypeError:\n    pass\n"},
		"doctest":                 {tests: "def g(n):\n    '''\n    >>> g(1)\n    2\n    '''\n    return f(n)\nimport doctest\nassert doctest.testmod().failed == 0\n"},
		"unittest":                {tests: "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        self.assertEqual(f(1), 2)\nif __name__ == '__main__':\n    unittest.main()\n"},
		"unittest, own base":      {tests: []any{"import unittest\nclass Base:\n    def testF(self):\n        self.assertEqual(f(1), 2)\n", "class T(Base, unittest.TestCase):\n    pass\n"}},
		"unittest, runTest":       {tests: "from unittest import TestCase\nclass T(TestCase):\n    def runTest(self):\n        self.assertEqual(f(1), 2)\n"},
		"a comprehension":         {tests: "[1 / (f(n) == 2 * n) for n in (1, 2)]"},
		"a name":                  {tests: "f"},
		"a name of the code":      {tests: "g = f"},
		"an annotation":           {tests: "def g(x: Kind):\n    pass\n"},
		"a variable's annotation": {tests: "x: Kind = None\n"},
		"a body of a class":       {tests: "class C:\n    assert f(1) == 2\n"},
		"a prepared test":         {tests: []any{"import math", "two = 2", "def want(n):\n    return math.trunc(two * n)\n", "assert f(1) == want(1)"}},
		"a test function's alias": {tests: "def twice():\n    assert f(1) == 2\ntest_f = twice\n"},
		"a decorator":             {tests: "def now(g):\n    g()\n@now\ndef checks():\n    assert f(1) == 2\n"},
		"a main guard's else":     {tests: "if __name__ == '__main__':\n    pass\nelse:\n    assert f(1) == 2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params := map[string]any{}
			if c.entry != "" {
				params["entry"] = "entry"
			}
			task := trajectory.Task{ID: "t", Fields: map[string]any{"tests": c.tests, "entry": c.entry}}
			got, err := codeReward(t, params).Score(t.Context(), Input{Task: task, Trajectory: answered("def f(n): return 2 * n\n\nclass Kind:\n    pass\n")})
			require.NoError(t, err)
			require.Equal(t, 1., got.Value)
		})
	}
}
