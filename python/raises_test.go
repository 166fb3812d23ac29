package python_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python"
)

// Texts of exceptions that Python's versions write differently; the others are in testdata/suite/nasty.json. None of them ends the worker.
func TestWhatAFunctionRaises(t *testing.T) {
	needPython(t)
	m, err := python.Load(t.Context(), "testdata/suite/nasty.py", python.Options{Runtime: python.CPython, Workers: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	for _, c := range [][3]string{
		{"mute", `{"kind": "Mute"}`, `^Mute: <(exception str\(\) failed|unprintable Mute object)>$`},
		{"mute", `{"kind": "Silent"}`, `^Silent: <(exception str\(\) failed|unprintable Silent object)>: line 45: raise .*$`},
		{"noted", `{}`, `^ValueError: wrong( try 3)?$`}, // notes came with Python 3.11
		{"syntax", `{}`, `^SyntaxError: ('\(' was never closed|unexpected EOF while parsing|invalid syntax)$`},
		{"deep", `{}`, `^RecursionError: maximum recursion depth exceeded`},
		{"many", `{}`, `^ValueError: x+$`},
	} {
		_, err := call(t.Context(), m, c[0], "", c[1])
		var raised *python.Error
		require.ErrorAs(t, err, &raised, c[0])
		require.Regexp(t, c[2], raised.Text)
		require.LessOrEqual(t, len(raised.Text), 2000)
	}
}

// A group of exceptions, which asyncio.TaskGroup raises, says what is in it.
func TestAGroupOfExceptions(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
from agentfly import tool

class Group(Exception):  # that of Python 3.11 has the same attribute
    exceptions = (ValueError("first"), KeyError("second"))

@tool()
def both():
    raise Group("unhandled errors in a TaskGroup (2 sub-exceptions)")

@tool()
def odd():
    e = ValueError("odd")
    e.exceptions = 3
    raise e
`)
	_, err := call(t.Context(), m, "both", "", `{}`)
	require.EqualError(t, err, "Group: unhandled errors in a TaskGroup (2 sub-exceptions): ValueError: first; KeyError: 'second'")
	_, err = call(t.Context(), m, "odd", "", `{}`)
	require.EqualError(t, err, "ValueError: odd")
}

func TestARelativeImport(t *testing.T) {
	needPython(t)
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte("import os\nfrom . import sibling\n"), 0o600))
	_, err := python.Load(t.Context(), file, python.Options{Workers: 1})
	require.EqualError(t, err, file+":2: ImportError: attempted relative import with no known parent package; "+
		"the file is no part of a package: write import NAME, its folder is searched")
}

// What a decorator is given wrongly is named where it stands, in the same words by both runtimes.
func TestWrongOptions(t *testing.T) {
	for option, want := range map[string]string{
		`name=3`:                  "TypeError: name=3: it must be a string",
		`description=["x"]`:       "TypeError: description=['x']: it must be a string",
		`environment=True`:        "TypeError: environment=True: it must be a string",
		`stateful=1`:              "TypeError: stateful=1: it must be True or False",
		`terminal="yes"`:          "TypeError: terminal='yes': it must be True or False",
		`timeout="5"`:             "TypeError: timeout='5': it must be a number of seconds",
		`timeout=True`:            "TypeError: timeout=True: it must be a number of seconds",
		`timeout=-1.5`:            "ValueError: timeout=-1.5: it must be above 0 and below 1e9",
		`timeout=1000000000000`:   "ValueError: timeout=1000000000000: it must be above 0 and below 1e9",
		`max_tokens=2.5`:          "TypeError: max_tokens=2.5: it must be a whole number",
		`max_length=0`:            "ValueError: max_length=0: it must be above 0 and below 1e9",
		`schema="{}"`:             "TypeError: schema='{}': it must be a dict",
		`status=0`:                "TypeError: status=0: it must be a string",
		`pool_size="8"`:           "TypeError: pool_size='8': it must be a whole number",
		`retries=3`:               "TypeError: tool() got an unexpected keyword argument 'retries'",
		`environment="chess"`:     `f: environment="chess": the function has no argument environment, which is what it acts with; add one, or leave the option out`,
		`schema={"type": "list"}`: `f: schema: it must be a JSON schema with "type": "object"`,
	} {
		file := filepath.Join(t.TempDir(), "tools.py")
		require.NoError(t, os.WriteFile(file, []byte("from agentfly import tool\n\n\n@tool("+option+")\ndef f():\n    return 1\n"), 0o600))
		for _, runtime := range []string{python.CPython, python.GPython} {
			if runtime == python.CPython {
				needPython(t)
			}
			_, err := python.Load(t.Context(), file, python.Options{Runtime: runtime, Workers: 1})
			require.Error(t, err, option)
			if option == `environment="chess"` && runtime == python.GPython {
				want = "NotImplementedError: environment is not supported by gpython; use runtime: cpython"
			}
			require.Equal(t, want, err.Error()[strings.Index(err.Error(), ": ")+2:], "%s: %v", runtime, err)
			require.Regexp(t, `^`+file+`:[45]: `, err.Error())
		}
	}
}

// A byte order mark is no part of the text; bytes in another encoding are named with their line.
func TestEncodingOfAFile(t *testing.T) {
	dir := t.TempDir()
	marked, latin := filepath.Join(dir, "marked.py"), filepath.Join(dir, "latin.py")
	text := "from agentfly import tool\r\n\r\n\r\n@tool()\r\ndef f():\r\n    return \"ü\"\r\n"
	require.NoError(t, os.WriteFile(marked, []byte("\xef\xbb\xbf"+text), 0o600))
	require.NoError(t, os.WriteFile(latin, []byte(strings.ReplaceAll(text, "ü", "\xfc")), 0o600))
	for _, runtime := range []string{python.CPython, python.GPython} {
		if runtime == python.CPython {
			needPython(t)
		}
		m, err := python.Load(t.Context(), marked, python.Options{Runtime: runtime, Workers: 1})
		require.NoError(t, err, runtime)
		got, err := call(t.Context(), m, "f", "", `{}`)
		require.NoError(t, err)
		require.Equal(t, "ü", unquote(t, got))
		require.NoError(t, m.Close())
		_, err = python.Load(t.Context(), latin, python.Options{Runtime: runtime, Workers: 1})
		require.EqualError(t, err, "python: "+latin+":6: the line is not UTF-8; save the file as UTF-8")
	}
}

func unquote(t *testing.T, data string) (text string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(data), &text))
	return text
}

// What a trajectory kept is closed when it is over; what closing raises concerns nobody.
func TestStateIsClosed(t *testing.T) {
	text := `from agentfly import state, tool


class Kept:
    def __init__(self, note, wrong):
        self.note = note
        self.wrong = wrong

    def close(self):
        f = open(self.note, "w")
        f.write("closed")
        f.close()
        if self.wrong:
            raise ValueError("it cannot be closed")


@tool(stateful=True)
def keep(name: str, note: str, wrong: bool = False):
    state()[name] = Kept(note, wrong)
    state()["text"] = "has no close"
    return len(state())
`
	for _, runtime := range []string{python.CPython, python.GPython} {
		t.Run(runtime, func(t *testing.T) {
			if runtime == python.CPython {
				needPython(t)
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "tools.py")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			m, err := python.Load(t.Context(), file, python.Options{Runtime: runtime, Workers: 1})
			require.NoError(t, err)
			keep := func(trajectory, name string, wrong bool) string {
				arguments, err := json.Marshal(map[string]any{"name": name, "note": filepath.Join(dir, name), "wrong": wrong})
				require.NoError(t, err)
				got, err := call(t.Context(), m, "keep", trajectory, string(arguments))
				require.NoError(t, err)
				return got
			}
			require.Equal(t, "2", keep("t", "a", true))
			require.Equal(t, "3", keep("t", "b", false))
			require.Equal(t, "2", keep("other", "c", false))
			m.End("t")
			require.Equal(t, "2", keep("t", "d", false), "it begins anew, after what it had kept is closed")
			closed := func(want map[string]bool) {
				for name, is := range want {
					_, err := os.Stat(filepath.Join(dir, name))
					require.Equal(t, is, err == nil, name)
				}
			}
			closed(map[string]bool{"a": true, "b": true, "c": false, "d": false})
			m.End("other")
			require.NoError(t, m.Close())
			closed(map[string]bool{"c": true, "d": false}) // a file that is closed waits for what has ended
		})
	}
}
