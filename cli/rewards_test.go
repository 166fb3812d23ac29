package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

func TestRewardsCall(t *testing.T) {
	run := func(args ...string) (string, error) {
		var o bytes.Buffer
		p := Program{In: strings.NewReader(""), Out: &o, ErrOut: io.Discard}
		p.Registries.Tools, p.Registries.Rewards = tools.NewCatalog(), rewards.Prebuilt()
		err := p.Run(context.Background(), append([]string{"agentfly", "rewards"}, args...))
		return o.String(), err
	}
	out, err := run("call", "final_answer", `{"final_response": "42", "answer": 42}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"reward": 1}`, out)
	out, err = run("call", "final_answer", `{"final_response": "41", "answer": 42}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"reward": 0}`, out)
	out, err = run("call", "right_call", `{"answer": 42, "calls": [{"name": "calculator", "arguments": {"expression": "6*7"}, "observation": "42"}]}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"reward": 1}`, out)
	out, err = run("call", "math_equal", "--param", "tolerance=0.01", `{"final_response": "1.414", "answer": "sqrt(2)"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"reward": 1, "parts": {"extracted": 1}}`, out)

	for want, args := range map[string][]string{
		`agentfly rewards call takes a reward's name and a JSON object of final_response, calls and the fields of the task, and before them the Python file if it has one`: {"call", "final_answer"},
		`rewards: there is no reward "final_anser"`:        {"call", "final_anser", "{}"},
		`the arguments "{" are not a JSON object`:          {"call", "final_answer", "{"},
		`the arguments "3" are not a JSON object`:          {"call", "final_answer", "3"},
		`the arguments "{} garbage" are not a JSON object`: {"call", "final_answer", "{} garbage"},
		`the arguments "{}{}" are not a JSON object`:       {"call", "final_answer", "{}{}"},
		`calls: json: unknown field "nam"`:                 {"call", "final_answer", `{"calls": [{"nam": 1}]}`},
		`final_response is no text`:                        {"call", "final_answer", `{"final_response": 1}`},
		`--param tolerance: write KEY=VALUE`:               {"call", "math_equal", "--param", "tolerance", "{}"},
		`"nothing.txt" is no Python file`:                  {"list", "nothing.txt"},
		`--param is of the catalog's rewards`:              {"call", "a.py", "f", "{}", "--param", "a=1"},
		`takes at most one argument, a Python file; got 2`: {"list", "a.py", "b.py"},
	} {
		out, err := run(args...)
		var usage *UsageError
		require.True(t, errors.As(err, &usage), "%v: %v", args, err)
		require.Contains(t, err.Error(), want)
		require.Empty(t, out)
	}
}

func TestRewardsOfAFile(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	run := func(args ...string) (string, error) {
		var o bytes.Buffer
		p := Program{In: strings.NewReader(""), Out: &o, ErrOut: io.Discard}
		p.Registries.Tools, p.Registries.Rewards = tools.NewCatalog(), rewards.Prebuilt()
		err := p.Run(context.Background(), append([]string{"agentfly"}, args...))
		return o.String(), err
	}
	file := filepath.Join(t.TempDir(), "r.py")
	require.NoError(t, os.WriteFile(file, []byte(`from agentfly import reward

@reward()
def polite(final_response: str, answer: str) -> dict:
    "Says please."
    return {"reward": 1.0 if "please" in final_response else 0.0, "right": answer in final_response}

@reward()
def broken(final_response: str) -> float:
    raise ValueError("no " + final_response)
`), 0o600))
	out, err := run("rewards", "list", file)
	require.NoError(t, err)
	require.Equal(t, "polite                   Says please.\nbroken                   \n", out)
	out, err = run("rewards", "call", file, "polite", `{"final_response": "7, please", "answer": "7"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"reward": 1, "parts": {"right": 1}}`, out)
	out, err = run("rewards", "call", file, "polite", `{"final_response": "7, please"}`)
	require.EqualError(t, err, "rewards: the call failed")
	require.Contains(t, out, "the argument answer is no field of task")
	out, err = run("rewards", "call", file, "broken", `{"final_response": "x"}`)
	require.EqualError(t, err, "rewards: the call failed")
	require.Contains(t, out, "ValueError: no x")
	_, err = run("rewards", "call", file, "rude", `{}`)
	require.ErrorContains(t, err, `the file has no reward "rude"; its rewards are polite, broken`)
	require.NoError(t, os.WriteFile(file, []byte("def f(): return 1\n"), 0o600))
	for _, what := range []string{"tools", "rewards"} {
		_, err = run(what, "list", file)
		require.EqualError(t, err, file+" decorates no function: write @tool() or @reward() above one, and from agentfly import tool, reward")
	}
	require.NoError(t, os.WriteFile(file, []byte("from agentfly import tool\n\n@tool()\ndef f(n: int) -> int:\n    \"Counts.\"\n    return n\n"), 0o600))
	_, err = run("rewards", "list", file)
	require.EqualError(t, err, file+" decorates no reward: write @reward() above a function, and from agentfly import reward")
}

// Parameters are read as --set reads settings of a job.
func TestParametersTakeTextsLetterByLetter(t *testing.T) {
	params := map[string]any{}
	require.NoError(t, setParams(params, []string{"a=You are #1", "b=7", "c.d=[x, 2]", "c.e=", `f="7"`, "g=one\n# two"}))
	require.Equal(t, map[string]any{"a": "You are #1", "b": 7, "c": map[string]any{"d": []any{"x", 2}, "e": nil}, "f": "7", "g": "one\n# two"}, params)
}
