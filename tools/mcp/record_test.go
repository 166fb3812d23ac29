package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// A recording answers as the server did.
func TestRecordAndReplay(t *testing.T) {
	dir := t.TempDir()
	resolve := resources.Options{Resolve: in(dir)}
	shared := resources.New(resolve)
	server := map[string]any{"command": []any{os.Args[0]}, "env": map[string]any{"MCP_TEST_SERVER": "tools"}, "record": "calls.jsonl", "prefix": "x_"}
	made, err := Source(t.Context(), shared, map[string]any{"mcp": server})
	require.NoError(t, err)
	live := tools.NewRegistry(tools.Options{})
	require.NoError(t, live.Register(made...))
	calls := [][2]string{
		{"x_add", `{"a": 1, "b": 2}`},
		{"x_fail", `{}`},
		{"x_deny", `{}`},
		{"x_internal", `{}`},
		{"x_structured", `{}`},
		{"x_parts", ``},
		{"x_crash", `{}`},
		{"x_add", `{"b":3, "a":4}`},
		{"x_env", `{"text": "MCP_TEST_SERVER"}`},
	}
	var want []string
	for _, c := range calls {
		want = append(want, invoke(t, live, c[0], c[1]).Observation)
	}
	require.NoError(t, shared.Close())
	require.Equal(t, "Error: GET /v1/items is allowed, not:\n  /srv/data/items", want[2], "the tool's own words, as in a result")

	shared = resources.New(resolve)
	defer shared.Close()
	made, err = Source(t.Context(), shared, map[string]any{"mcp": map[string]any{"replay": "calls.jsonl", "prefix": "x_"}})
	require.NoError(t, err)
	again := tools.NewRegistry(tools.Options{})
	require.NoError(t, again.Register(made...))
	require.Equal(t, live.Specs(), again.Specs())
	for i, c := range calls {
		got := invoke(t, again, c[0], c[1])
		require.Equal(t, want[i], got.Observation)
		require.Equal(t, c[0] == "x_crash" || c[0] == "x_internal", got.Cause == trajectory.CauseBroken)
	}
	require.Equal(t, "7", invoke(t, again, "x_add", `{"a":4, "b":3}`).Observation, "the order of members does not matter")
	got := invoke(t, again, "x_add", `{"a": 9, "b": 9}`)
	require.Equal(t, trajectory.CauseBroken, got.Cause)
	require.Equal(t, `Error: the recording has no call of add with the arguments {"a": 9, "b": 9}; record it with the server`, got.Observation)
}

func TestRecordingOfRepeatedCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"tools":[{"name":"roll","parameters":{"type":"object"}}]}
{"tool":"roll","arguments":{"x":1.0},"text":"3"}
{"tool":"roll","arguments":{"x":1.0},"text":"5","image":"data:,x","info":{"n":5}}
`), 0o600))
	from, offers, err := readRecording(path)
	require.NoError(t, err)
	require.Equal(t, []offer{{Name: "roll", Parameters: json.RawMessage(`{"type":"object"}`)}}, offers)
	for _, want := range []tools.Observation{{Text: "3"}, {Text: "5", Image: "data:,x", Info: map[string]any{"n": json.Number("5")}}, {Text: "5", Image: "data:,x", Info: map[string]any{"n": json.Number("5")}}} {
		got, err := from.call(t.Context(), "roll", json.RawMessage(`{"x":1.0}`))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestRecordingsThatCannotBeRead(t *testing.T) {
	const offers = `{"tools":[{"name":"a","parameters":{}}]}` + "\n"
	for text, want := range map[string]string{
		"":                                       "replay: r.jsonl:1: the file is empty; record it again",
		`{"tool":"a"}`:                           "replay: r.jsonl:1: the first line must hold the server's tools; record it again",
		offers + `{"text":"a"}`:                  "replay: r.jsonl:2: the line names no tool; record it again",
		offers + `{"tool":"a","txt":"b"}`:        `replay: r.jsonl:2: the line cannot be read: json: unknown field "txt"; record it again`,
		offers + `{"tool":"a","text":"b"` + "\n": "replay: r.jsonl:2: the line cannot be read: unexpected EOF; record it again",
	} {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, _, err := readRecording(path)
		require.EqualError(t, err, want)
	}
	_, _, err := readRecording(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A call that its run interrupted is no result; one that was late is.
func TestRecordOfWhatFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	r, err := newRecorder(path, failing{}, []offer{{Name: "a", Parameters: json.RawMessage(`{}`)}}, nil)
	require.NoError(t, err)
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.call(interrupted, "a", nil)
	require.ErrorIs(t, err, context.Canceled)
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	_, err = r.call(late, "a", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, r.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `{"tools":[{"name":"a","parameters":{}}]}`+"\n"+`{"tool":"a","error":"the server did not answer in time","broken":true}`+"\n", string(data))
}

// A recording goes on where the tools are opened again, as when a run is resumed; a line that was cut is left out.
func TestRecordGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	offers := []offer{{Name: "count", Description: "Counts <on>.", Parameters: json.RawMessage(`{"type": "object"}`)}}
	server := &counting{}
	for _, cut := range []string{"", `{"tool":"count","text":"` + strings.Repeat("x", 100_000), `{"tools":[{"na`} {
		if strings.HasPrefix(cut, `{"tools"`) {
			require.NoError(t, os.Rename(path, path+".whole"))
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = file.WriteString(cut)
		require.NoError(t, errors.Join(err, file.Close()))
		r, err := newRecorder(path, server, offers, nil)
		require.NoError(t, err)
		_, err = r.call(t.Context(), "count", nil)
		require.NoError(t, errors.Join(err, r.Close()))
	}
	for file, want := range map[string][]string{path + ".whole": {"1", "2", "2"}, path: {"3", "3"}} {
		from, got, err := readRecording(file)
		require.NoError(t, err)
		require.Equal(t, "Counts <on>.", got[0].Description)
		for _, text := range want {
			o, err := from.call(t.Context(), "count", nil)
			require.NoError(t, err)
			require.Equal(t, text, o.Text)
		}
	}

	for _, text := range []string{`{"tools":[{"name":"a","parameters":{}}]}` + "\n" + `{"tool":"a","text":"b"}` + "\n", "notes\n", "notes"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := newRecorder(path, server, offers, nil)
		require.EqualError(t, err, "record: "+path+" does not begin with the tools that this server offers; move it away, or name another file")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(data))
	}
}

type counting struct{ n int }

func (c *counting) call(context.Context, string, json.RawMessage) (tools.Observation, error) {
	c.n++
	return tools.Observation{Text: strconv.Itoa(c.n)}, nil
}

type failing struct{}

func (failing) call(ctx context.Context, _ string, _ json.RawMessage) (tools.Observation, error) {
	return tools.Observation{}, ctx.Err()
}

func FuzzRecording(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","parameters":{}}]}` + "\n" + `{"tool":"a","arguments":{"x":[1]},"text":"b"}`))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "r")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		from, offers, err := readRecording(path)
		if err == nil {
			require.NotEmpty(t, offers)
			_, _ = from.call(t.Context(), offers[0].Name, nil)
		}
	})
}
