package agentfly_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/python/gpython"
)

// TestMain lets the test binary stand in for a worker of Python files.
func TestMain(m *testing.M) {
	gpython.Main(os.Args)
	os.Exit(m.Run())
}

// command runs a command line and returns status, output and errors.
func command(args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = agentfly.Run(context.Background(), append([]string{"agentfly"}, args...), strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
}

// block is the code block of a page, in a language, that holds a text.
func block(t *testing.T, page, language, holds string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1) {
		if strings.Contains(string(found[1]), holds) {
			return string(found[1])
		}
	}
	t.Fatalf("%s has no %s block with %q", page, language, holds)
	return ""
}

func TestTheJobOfTheBookIsTheShippedOne(t *testing.T) {
	path := filepath.Join("examples", "readme_test.yml") // no .yaml, which the tests of the shipped jobs would find
	require.NoError(t, os.WriteFile(path, []byte(block(t, "docs/job-file.md", "yaml", "version: 1")), 0o600))
	t.Cleanup(func() { require.NoError(t, os.Remove(path)) })
	status, out, errs := command("job", "validate", path)
	require.Zero(t, status, errs)
	require.True(t, strings.HasPrefix(out, path+": ok\n"), out)
	of := func(job string) string {
		status, out, errs := command("job", "effective", job)
		require.Zero(t, status, errs)
		return out
	}
	require.Equal(t, of("examples/calculator.yaml"), of(path))
}

func TestTheREADMEsPythonFileRuns(t *testing.T) {
	needPython(t)
	file := filepath.Join(t.TempDir(), "weather.py")
	text := block(t, "README.md", "python", "@tool")
	require.LessOrEqual(t, strings.Count(text, "\n"), 20)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	status, out, errs := command("tools", "call", file, "weather", `{"city": "Oslo"}`)
	require.Zero(t, status, errs)
	require.Equal(t, "{\"observation\":\"20 degrees celsius in Oslo\"}\n", out)
	status, out, errs = command("tools", "test", file)
	require.Zero(t, status, errs)
	require.Equal(t, "ok   test_weather\n", out)
}

func TestAToolWithStateInPythonRuns(t *testing.T) {
	needPython(t)
	file := filepath.Join(t.TempDir(), "notes.py")
	text := block(t, "docs/tools-python.md", "python", "stateful=True")
	require.LessOrEqual(t, strings.Count(text, "\n"), 20)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	m, err := python.Load(t.Context(), file, python.Options{Runtime: python.CPython, Workers: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	for _, c := range [][2]string{{"a", "1"}, {"a", "2"}, {"b", "1"}, {"a", "3"}} {
		got, err := m.Call(t.Context(), "note", c[0], []byte(`{"text": "x"}`))
		require.NoError(t, err)
		require.Equal(t, c[1], string(got))
	}
	m.End("a")
	got, err := m.Call(t.Context(), "note", "a", []byte(`{"text": "x"}`))
	require.NoError(t, err)
	require.Equal(t, "1", string(got), "what the trajectory kept is gone")
	status, out, errs := command("tools", "test", file)
	require.Zero(t, status, errs)
	require.Equal(t, "ok   test_note\n", out)
}

// The program is the whole command line: it calls its tool, and jobs can name its parts.
func TestTheREADMEsProgramRuns(t *testing.T) {
	text := block(t, "README.md", "go", "agentfly.WithReward")
	require.LessOrEqual(t, strings.Count(text, "\n"), 32)
	program := build(t, text)
	out, err := exec.Command(program, "tools", "call", "weather", `{"city": "Oslo"}`).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "{\"observation\":\"sunny in Oslo\"}\n", string(out))
	out, err = exec.Command(program, "job", "validate", "--set", "agent.tools=[weather]", "--set", "rewards=[polite]", "examples/tiny.yaml").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, strings.HasPrefix(string(out), "examples/tiny.yaml: ok\n"), "%s", out)
}

func TestAToolWithStateInGoRuns(t *testing.T) {
	text := block(t, "docs/tools.md", "go", "WithToolFactory")
	require.LessOrEqual(t, strings.Count(text, "\n"), 34)
	program := build(t, text)
	out, err := exec.Command(program, "tools", "call", "notes", `{"text": "x"}`).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.JSONEq(t, `{"observation": "before: <nil>"}`, string(out))
}

// Every example in Go of the README and of the pages is a complete file that compiles, or names the file that it is a part of.
func TestExamplesInGoAreCompleteFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the compiler; leave -short out")
	}
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	dir, err := os.MkdirTemp(".", "_examples_in_go")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	var programs []string
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, at := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatchIndex(text, -1) {
			line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
			if regexp.MustCompile("From\\s`[^`]+`:\\s*$").Match(text[:at[0]]) {
				continue // TestExtendingsExamplesAreBuilt compares it with that file
			}
			source := text[at[2]:at[3]]
			require.True(t, bytes.HasPrefix(source, []byte("package main\n")), "%s:%d: the example is no complete file", page, line)
			of := filepath.Join(dir, strings.TrimSuffix(filepath.Base(page), ".md")+strconv.Itoa(line))
			require.NoError(t, os.Mkdir(of, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(of, "main.go"), source, 0o600))
			programs = append(programs, "./"+of)
		}
	}
	require.GreaterOrEqual(t, len(programs), 6)
	vet := exec.Command("go", append([]string{"vet"}, programs...)...)
	vet.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// build builds a program of a page and returns its path.
func build(t *testing.T, program string) string {
	if testing.Short() {
		t.Skip("it runs the compiler; leave -short out")
	}
	dir, err := os.MkdirTemp(".", "_readme") // the underscore hides it from what lists packages meanwhile
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	to := filepath.Join(t.TempDir(), "out")
	build := exec.Command("go", "build", "-o", to, "./"+dir)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}
