package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// pythonAgent makes the format of a file with this text, or its error.
func pythonAgent(t *testing.T, source string) (Format, error) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	file := filepath.Join(t.TempDir(), "mine.py")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
	r := resources.New(resources.Options{})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return NewPythonFormat(t.Context(), r, file, testSpecs(), FormatOptions{})
}

const mine = `from agentfly import agent

@agent
def parse(completion):
    if completion == "raise":
        raise ValueError("no such luck")
    if completion == "odd":
        return {"call": 1}
    if completion == "unnamed":
        return {"calls": [{"arguments": {}}]}
    if completion.startswith("!"):
        return {"calls": [{"name": "calculator", "arguments": {"expression": completion[1:]}}, {"name": "roll"}]}
    if completion.startswith("?"):
        return {"errors": ["write ! and\nan expression"], "answer": "dropped"}
    if completion == "5":
        return {"answer": 5}
    return {"answer": completion or None}

@agent
def observe(results):
    if results[0]["observation"] == "list":
        return [{"role": "tool", "content": r["name"] + str(r["arguments"]) + str(r["failed"])} for r in results]
    if results[0]["observation"] == "nothing":
        return []
    return "saw " + ", ".join(r["observation"] for r in results)

@agent
async def instructions(tools):
    return "Write ! before what " + tools[0]["function"]["name"] + " shall compute."

@agent
def stops():
    return ["\n"]
`

func TestPythonFormat(t *testing.T) {
	f, err := pythonAgent(t, mine)
	require.NoError(t, err)
	require.Equal(t, "Write ! before what calculator shall compute.", f.Instructions())
	require.Equal(t, []string{"\n"}, f.Stops())
	for in, want := range map[string]Parsed{
		"!1+1": called("calculator", `{"expression": "1+1"}`, "roll", "{}"), "?": wrong("write ! and an expression"), "5": answer("5"), "so": answer("so"), "": {},
	} {
		got := parse(t, f, in)
		for i, c := range got.Calls {
			require.JSONEq(t, string(want.Calls[i].Arguments), string(c.Arguments))
			got.Calls[i].Arguments = want.Calls[i].Arguments
		}
		require.Equal(t, want, got, in)
	}
	for in, want := range map[string]string{
		"raise":   "mine.py: parse: ValueError: no such luck",
		"odd":     `mine.py: parse returned {"call": 1}, which cannot be read: unknown field "call"`,
		"unnamed": "mine.py: parse returned a call without a name, or whose arguments are no dict",
	} {
		_, err := f.Parse(t.Context(), in)
		require.EqualError(t, err, want)
	}
	result := func(text string) []trajectory.ToolResult {
		return []trajectory.ToolResult{{Call: calls("calculator", `{"expression":"1"}`)[0], Observation: text}, {Observation: "b", Failed: true}}
	}
	require.Equal(t, []trajectory.Message{trajectory.Text("user", "saw a, b")}, observe(t, f, result("a")))
	require.Equal(t, []trajectory.Message{trajectory.Text("tool", "calculator{'expression': '1'}False"), trajectory.Text("tool", "{}True")}, observe(t, f, result("list")))
	_, err = f.Observe(t.Context(), result("nothing"))
	require.EqualError(t, err, `mine.py: observe returned []; return a string, or a list of {"role": …, "content": …}`)
}

func TestPythonFormatErrors(t *testing.T) {
	for source, want := range map[string]string{
		"x = 1\n": "mine.py has no function parse that carries @agent; write parse(completion) and observe(results)",
		"from agentfly import agent\n\n@agent\ndef parse(completion):\n    return {}\n": "mine.py has no function observe that carries @agent; write parse(completion) and observe(results)",
	} {
		_, err := pythonAgent(t, source)
		require.ErrorContains(t, err, want)
	}
}

// The file python/testdata/suite/reader.py has an agent whose four functions are all there.
func TestPythonFormatWithAllFunctions(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	r := resources.New(resources.Options{})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	specs := []tools.Spec{{Name: "calculator", Description: "Computes."}}
	f, err := NewPythonFormat(t.Context(), r, filepath.Join("..", "python", "testdata", "suite", "reader.py"), specs, FormatOptions{})
	require.NoError(t, err)
	require.Equal(t, "Tools: calculator", f.Instructions())
	require.Equal(t, []string{"\nSAW"}, f.Stops())
	p, err := f.Parse(t.Context(), "I add.\nCALL calculator 1 + 1\nCALL")
	require.NoError(t, err)
	require.Len(t, p.Calls, 1)
	require.JSONEq(t, `{"expression": "1 + 1"}`, string(p.Calls[0].Arguments))
	require.Equal(t, []string{"a call is CALL NAME TEXT"}, p.Errors)
	p, err = f.Parse(t.Context(), "ANSWER 2")
	require.NoError(t, err)
	require.True(t, p.HasAnswer)
	require.Equal(t, "2", p.Answer)
	m, err := f.Observe(t.Context(), []trajectory.ToolResult{{Call: trajectory.ToolCall{Name: "calculator"}, Observation: "2"}})
	require.NoError(t, err)
	require.Equal(t, []trajectory.Message{trajectory.Text("user", "SAW 2")}, m)
}
