package rewards

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

func codeReward(t *testing.T, params map[string]any) Reward {
	t.Helper()
	r := resources.New(resources.Options{})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	if _, err := r.Sandbox(t.Context()); errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err.Error())
	}
	w, err := Prebuilt().Builder(t.Context(), r).Make("code_tests", params)
	require.NoError(t, err)
	return w
}

func answered(text string) *trajectory.Trajectory {
	return &trajectory.Trajectory{Turns: []trajectory.Turn{{Completion: text, FinalAnswer: text, AnsweredThisTurn: true}}}
}

func TestCodeTests(t *testing.T) {
	double := "def f(n):\n    return 2 * n\n"
	asserts := []any{"assert f(1) == 2", "assert f(2) == 4", "assert f('a') == 'aa'"}
	pairs := []any{map[string]any{"input": "3\n", "output": "6"}, map[string]any{"input": "0\n", "output": "0\n"}}
	echo := "print(2 * int(input()))"
	unit := "import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(1), "
	for name, c := range map[string]struct {
		tests          any
		answer         string
		partial        bool
		value, passing float64
	}{
		"right":                 {tests: asserts, answer: double, value: 1, passing: 1},
		"fenced":                {tests: asserts, answer: "First\n```python\nx\n```\nthen\n```python\n" + double + "```\n", value: 1, passing: 1},
		"fence with a space":    {tests: asserts, answer: "So:\n``` python\n" + double + "```\nDone.", value: 1, passing: 1},
		"fence, CRLF":           {tests: asserts, answer: "So:\r\n```python\r\ndef f(n):\r\n    return 2 * n\r\n```\r\n", value: 1, passing: 1},
		"fence behind C#":       {tests: asserts, answer: "```c#\nint f(int n) => 2 * n;\n```\nand\n```python\n" + double + "```\n", value: 1, passing: 1},
		"fence in a string":     {tests: "assert f('a```b') == ['a', 'b']", answer: "```python\ndef f(s):\n    return s.split('```')\n```\n", value: 1, passing: 1},
		"fence in a docstring":  {tests: asserts, answer: "```python\ndef f(n):\n    \"\"\"Doubles.\n\n    ```\n    f(1)\n    ```\n    \"\"\"\n    return 2 * n\n```\n", value: 1, passing: 1},
		"fence in a list":       {tests: asserts, answer: "1. So:\n   ```python\n   def f(n):\n\n       return 2 * n\n   ```\n", value: 1, passing: 1},
		"fence behind a bullet": {tests: asserts, answer: "- ```python\n  def f(n):\n      return 2 * n\n  ```\n", value: 1, passing: 1},
		"fence behind words":    {tests: asserts, answer: "With `f`: ```python\ndef f(n): return 2 * n```, as ```f(1)``` shows.", value: 1, passing: 1},
		"fences side by side":   {tests: asserts, answer: "```python\nx```\n```python\n" + double + "```", value: 1, passing: 1},
		"text behind a fence":   {tests: asserts, answer: "A draft:\n```python\ndef f(n): return n\n``` is wrong.\nThis is right:\n```python\n" + double + "```\n", value: 1, passing: 1},
		"a stop behind a fence": {tests: asserts, answer: "A draft:\n```python\ndef f(n): return n\n```. But ```python\n" + double + "```\n", value: 1, passing: 1},
		"longer fence":          {tests: asserts, answer: "````python\ns = \"\"\"\n```\n\"\"\"\n" + double + "````", value: 1, passing: 1},
		"fence not closed":      {tests: asserts, answer: "```python\n" + double + "```\n```python\ndef f(", value: 1, passing: 1},
		"one wrong":             {tests: asserts, answer: "def f(n): return n + n if n != 2 else 5", value: 0, passing: 2. / 3},
		"one wrong, partial":    {tests: asserts, answer: "def f(n): return n + n if n != 2 else 5", partial: true, value: 2. / 3, passing: 2. / 3},
		"syntax":                {tests: asserts, answer: "def f(n) return n"},
		"no function":           {tests: asserts, answer: "pass"},
		"one text":              {tests: "assert f(1) == 2\nassert f(2) == 4", answer: double, value: 1, passing: 1},
		"test functions":        {tests: "def test_one(): assert f(1) == 2\ndef test_two(): assert f(2) == 5", answer: double},
		"test functions, right": {tests: "def test_one(): assert f(1) == 2", answer: double, value: 1, passing: 1},
		"exits":                 {tests: asserts, answer: "import sys\nsys.exit(0)"},
		"exits at once":         {tests: asserts, answer: "import os\nos._exit(0)"},
		"exits within":          {tests: asserts, answer: "import os\ndef f(n):\n    if n == 2: os._exit(0)\n    return 2 * n", partial: true, value: 1. / 3, passing: 1. / 3},
		"claims":                {tests: asserts, answer: "import os\nfor fd in range(10):\n  try: os.write(fd, b'0\\n1\\n2\\n')\n  except OSError: pass"},
		"forks":                 {tests: asserts, answer: "import os\ndef f(n):\n    if os.fork() == 0: return 2 * n\n    return 0"},
		"loops":                 {tests: asserts, answer: "def f(n):\n    while n == 2: pass\n    return 2 * n", partial: true, value: 1. / 3, passing: 1. / 3},
		"program":               {tests: pairs, answer: echo, value: 1, passing: 1},
		"program, spaces":       {tests: []any{map[string]any{"input": "", "output": "a\nb\n"}}, answer: "print('a  '); print('b'); print()", value: 1, passing: 1},
		"program, wrong":        {tests: pairs, answer: "print(6)", partial: true, value: .5, passing: .5},
		"program, fails":        {tests: pairs, answer: echo + "\nexit(1)"},
		"its own tests":         {tests: "def test_f(): assert f(1) == 2", answer: "def f(n): return n\ndef test_f(): assert f(1) == 1"},
		"same name":             {tests: []any{"def test_f(): assert f(1) == 2", "def test_f(): assert f(2) == 5"}, answer: double, partial: true, value: .5, passing: .5},
		"async tests":           {tests: []any{"async def test_f(): assert f(1) == 2", "async def test_f(): assert f(2) == 5"}, answer: double, partial: true, value: .5, passing: .5},
		"unittest":              {tests: []any{unit + "2)", unit + "3)"}, answer: double, partial: true, value: .5, passing: .5},
		"a zero byte":           {tests: pairs, answer: echo + "#\x00"},
		"nothing":               {tests: asserts, answer: "  "},
		"too long":              {tests: asserts, answer: double + "#" + strings.Repeat("x", maxCode)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := codeReward(t, map[string]any{"partial": c.partial, "timeout": 2})
			task := trajectory.Task{ID: "t", Fields: map[string]any{"tests": c.tests}}
			got, err := w.Score(t.Context(), Input{Task: task, Trajectory: answered(c.answer)})
			require.NoError(t, err)
			require.InDelta(t, c.value, got.Value, 1e-9)
			require.InDelta(t, c.passing, got.Parts["passed"], 1e-9)
		})
	}
}

func TestCodeTestsFields(t *testing.T) {
	w := codeReward(t, map[string]any{"tests": "test", "setup": "prompt", "entry": "entry_point"})
	task := trajectory.Task{ID: "t", Fields: map[string]any{
		"test": "def check(candidate):\n    assert candidate(4) == 2", "prompt": "import math\n", "entry_point": "root",
	}}
	got, err := w.Score(t.Context(), Input{Task: task, Trajectory: answered("def root(n): return math.sqrt(n)")})
	require.NoError(t, err)
	require.Equal(t, Score{Value: 1, Parts: map[string]float64{"passed": 1, "code": 1, "tampered": 0, "refused": 0, "trusted": 0}}, got)
	got, err = w.Score(t.Context(), Input{Task: task, Trajectory: answered("def root(n): return n")})
	require.NoError(t, err)
	require.Equal(t, Score{Value: 0, Parts: map[string]float64{"passed": 0, "code": 1, "tampered": 0, "refused": 0, "trusted": 0}}, got)
	got, err = w.Score(t.Context(), Input{Task: task, Trajectory: answered("def root(n): return n\ndef check(candidate): pass")})
	require.NoError(t, err)
	require.Zero(t, got.Value, "its own check does not stand in for the task's")

	// A program's import from __future__ may come first behind the setup.
	program := codeReward(t, map[string]any{"setup": "prompt"})
	future := trajectory.Task{ID: "t", Fields: map[string]any{"prompt": "import math\nprint('ready')", "tests": []any{map[string]any{"input": "4", "output": "ready\n2.0 1"}}}}
	got, err = program.Score(t.Context(), Input{Task: future, Trajectory: answered("from __future__ import annotations\nimport sys\ndef f(n: Unknown): print(math.sqrt(n), len(sys.argv))\nif __name__ == '__main__': f(int(input()))")})
	require.NoError(t, err)
	require.Equal(t, 1., got.Value)

	// Without an answer the last block counts; without a block there is no code.
	block := &trajectory.Trajectory{Turns: []trajectory.Turn{{Completion: "```\ndef root(n): return n ** .5\n```"}, {Completion: "nothing"}}}
	got, err = w.Score(t.Context(), Input{Task: task, Trajectory: block})
	require.NoError(t, err)
	require.Equal(t, 1., got.Value)
	got, err = w.Score(t.Context(), Input{Task: task, Trajectory: &trajectory.Trajectory{Turns: block.Turns[1:]}})
	require.NoError(t, err)
	require.Equal(t, Score{Value: 0, Parts: map[string]float64{"passed": 0, "code": 0, "tampered": 0, "refused": 0, "trusted": 0}}, got)

	for _, tests := range []any{1, "", []any{}, []any{1}, []any{map[string]any{"input": "x"}}, []any{"x", map[string]any{"input": "", "output": ""}}} {
		task.Fields["test"] = tests
		_, err = w.Score(t.Context(), Input{Task: task, Trajectory: block})
		require.EqualError(t, err, `task "t": the field "test" must be Python text, a list of such, or a list of {input, output}`)
	}
	delete(task.Fields, "test")
	_, err = w.Score(t.Context(), Input{Task: task, Trajectory: block})
	require.ErrorContains(t, err, `has no field "test"`)
}
