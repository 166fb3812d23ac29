package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python"
)

var update = flag.Bool("update", false, "write what the suite's files were seen to do into testdata/suite/*.json; read the difference")

// suiteFile is what a file of testdata/suite does, on every runtime that has what it needs.
type suiteFile struct {
	Needs     []string        `json:"needs,omitempty"`   // of Python, beyond what every runtime has
	GPython   []string        `json:"gpython,omitempty"` // what the linter of gpython says then
	Errors    []string        `json:"errors,omitempty"`  // of loading, without the folder
	Functions []suiteFunction `json:"functions,omitempty"`
	Tests     []suiteCall     `json:"tests,omitempty"`
	Calls     []suiteCall     `json:"calls,omitempty"` // in order
}

type suiteFunction struct {
	Kind          string          `json:"kind"`
	Name          string          `json:"name"`
	Description   string          `json:"description,omitempty"`
	Parameters    json.RawMessage `json:"parameters,omitempty"`
	Arguments     []string        `json:"arguments,omitempty"`
	Timeout       string          `json:"timeout,omitempty"`
	MaxTokens     int             `json:"max_tokens,omitempty"`
	MaxLength     int             `json:"max_length,omitempty"`
	Stateful      bool            `json:"stateful,omitempty"`
	Terminal      bool            `json:"terminal,omitempty"`
	Idempotent    bool            `json:"idempotent,omitempty"`
	Deterministic bool            `json:"deterministic,omitempty"`
	Context       bool            `json:"context,omitempty"`
	Warnings      []string        `json:"warnings,omitempty"`
}

type suiteCall struct {
	Name       string          `json:"name"`
	Trajectory string          `json:"trajectory,omitempty"`
	End        bool            `json:"end,omitempty"` // of the trajectory, before the call
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
}

// AGENTFLY_TEST_PYTHON names another interpreter than python3.
func TestSuiteCPython(t *testing.T) {
	needPython(t)
	suite(t, python.CPython)
}

// Files that need more than gpython has are refused, with lines and columns. Where CPython refuses too, it names no column.
func TestSuiteGPython(t *testing.T) { suite(t, python.GPython) }

var column = regexp.MustCompile(`^([^:]*:\d+):\d+:`)

// suite runs every file of testdata/suite with a runtime.
func suite(t *testing.T, runtime string) {
	files, err := filepath.Glob("testdata/suite/*.json")
	require.NoError(t, err)
	require.Greater(t, len(files), 15)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			var want suiteFile
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(data, &want))
			got := observe(t, strings.TrimSuffix(file, ".json")+".py", runtime, want)
			refused := runtime == python.GPython && len(want.Needs) > 0
			if refused {
				said := got.Errors
				got = want
				got.GPython = said
				require.NotEmpty(t, said)
			}
			if *update && (refused || runtime == python.CPython) {
				out, err := json.MarshalIndent(got, "", "  ")
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, append(out, '\n'), 0o600))
			}
			same(t, want.Functions, got.Functions)
			same(t, want, got)
		})
	}
}

func same(t *testing.T, want, got any) {
	t.Helper()
	a, err := json.Marshal(want)
	require.NoError(t, err)
	b, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(a), string(b))
}

// observe loads a file and makes the calls that are wanted.
func observe(t *testing.T, file, runtime string, want suiteFile) suiteFile {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := suiteFile{Needs: want.Needs, GPython: want.GPython}
	m, err := python.Load(ctx, file, python.Options{Runtime: runtime, Workers: 1, Interpreter: os.Getenv("AGENTFLY_TEST_PYTHON")})
	if err != nil {
		dir, absErr := filepath.Abs(filepath.Dir(file))
		require.NoError(t, absErr)
		for _, line := range strings.Split(err.Error(), "\n") {
			line, _, _ = strings.Cut(line, "; install it for")
			got.Errors = append(got.Errors, strings.ReplaceAll(line, dir+"/", ""))
			if len(want.Needs) == 0 {
				last := &got.Errors[len(got.Errors)-1]
				*last = column.ReplaceAllString(*last, "$1:")
			}
		}
		return got
	}
	defer func() { require.NoError(t, m.Close()) }()
	for _, f := range m.Functions() {
		s := suiteFunction{
			f.Kind, f.Name, f.Description, f.Parameters, f.Arguments, "", f.MaxTokens, f.MaxLength, f.Stateful, f.Terminal, f.Idempotent,
			f.Deterministic, f.Context, f.Warnings,
		}
		if f.Timeout > 0 {
			s.Timeout = f.Timeout.String()
		}
		got.Functions = append(got.Functions, s)
	}
	for _, name := range m.Tests() {
		s := suiteCall{Name: name}
		if err := m.RunTest(ctx, name); err != nil {
			s.Error = err.Error()
		}
		got.Tests = append(got.Tests, s)
	}
	for _, c := range want.Calls {
		if c.End {
			m.End(c.Trajectory)
		}
		c.Result, err = m.Call(ctx, c.Name, c.Trajectory, c.Arguments)
		c.Error = ""
		if err != nil {
			var raised *python.Error
			require.True(t, errors.As(err, &raised), "%s: %v", c.Name, err)
			c.Error = err.Error()
		}
		got.Calls = append(got.Calls, c)
	}
	return got
}

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
}

// Unpack, which Python 3.11 brought, says of **kwargs what they are together, and nothing of each.
func TestUnpackedArguments(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
from agentfly import tool
try:
    from typing import TypedDict, Unpack
except ImportError:
    Unpacked = object
else:
    Unpacked = Unpack[TypedDict("Words", {"a": str})]

@tool()
def say(**words: Unpacked):
    return words["a"]
`)
	require.JSONEq(t, `{"type": "object", "properties": {}, "required": [], "additionalProperties": true}`, string(m.Functions()[0].Parameters))
	said, err := call(t.Context(), m, "say", "", `{"a": "x"}`)
	require.NoError(t, err)
	require.Equal(t, `"x"`, said)
}
