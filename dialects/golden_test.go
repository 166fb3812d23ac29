package dialects

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

var update = flag.Bool("update", false, "write the goldens anew")

// recorded is a request that a real agent sent: testdata/requests/CLIENT.jsonl, with long texts shortened. Tools "as before" are those of the
// request above.
type recorded struct {
	Case string          `json:"case"`
	N    int             `json:"n"`
	Path string          `json:"path"`
	Body json.RawMessage `json:"body"`
}

func recordings(t testing.TB) map[string][]recorded {
	files, err := filepath.Glob("testdata/requests/*.jsonl")
	require.NoError(t, err)
	require.Len(t, files, 12)
	out := map[string][]recorded{}
	for _, file := range files {
		f, err := os.Open(file)
		require.NoError(t, err)
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		var tools json.RawMessage
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		for lines.Scan() {
			var r recorded
			require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
			var body map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(r.Body, &body))
			if string(body["tools"]) == `"as before"` {
				body["tools"] = tools
				r.Body, err = json.Marshal(body)
				require.NoError(t, err)
			} else if body["tools"] != nil {
				tools = body["tools"]
			}
			out[name] = append(out[name], r)
		}
		require.NoError(t, lines.Err())
		require.NoError(t, f.Close())
	}
	return out
}

// dialectOf is the dialect of a path.
func dialectOf(t testing.TB, path string) Dialect {
	path, _, _ = strings.Cut(path, "?")
	switch path {
	case "/v1/chat/completions":
		return Chat()
	case "/v1/completions":
		return Completions()
	case "/v1/responses":
		return Responses()
	case "/v1/messages", "/v1/messages/count_tokens":
		return Messages()
	}
	t.Fatalf("no dialect at %s", path)
	return nil
}

// line shows a message; arguments are shown as they were written.
func line(t testing.TB, m trajectory.Message) []byte {
	type call struct{ ID, Name, Arguments string }
	var v struct {
		Role      string
		Content   []trajectory.Part `json:",omitempty"`
		Reasoning string            `json:",omitempty"`
		Calls     []call            `json:",omitempty"`
		Of        string            `json:",omitempty"`
		Name      string            `json:",omitempty"`
	}
	v.Role, v.Content, v.Reasoning, v.Of, v.Name = m.Role, m.Content, m.Reasoning, m.ToolCallID, m.Name
	for _, c := range m.ToolCalls {
		v.Calls = append(v.Calls, call{c.ID, c.Name, string(c.Arguments)})
	}
	out, err := wording.JSON(v)
	require.NoError(t, err)
	return out
}

// TestRecorded reads what twelve agents sent, and compares the conversations with testdata/requests/CLIENT.golden: one line a message.
func TestRecorded(t *testing.T) {
	for name, requests := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			for _, r := range requests {
				q, err := dialectOf(t, r.Path).Parse(http.Header{}, r.Body)
				fmt.Fprintf(&b, "== %s %d %s\n", r.Case, r.N, r.Path)
				if err != nil {
					var e *Error
					require.ErrorAs(t, err, &e)
					fmt.Fprintf(&b, "error %+v\n", *e)
					continue
				}
				for _, m := range q.Messages {
					fmt.Fprintf(&b, "%s\n", line(t, m))
				}
				var names []string
				for i, tool := range q.Tools {
					n, err := ToolName(fmt.Sprint(i), tool)
					require.NoError(t, err)
					names = append(names, n)
				}
				fmt.Fprintf(&b, "model %s tools %v choice %s parallel %v stream %v usage %v stop %q\nasked %s\n", q.Model, names, q.Choice.Mode, q.Parallel, q.Stream, q.StreamUsage, q.Stop, q.Asked)
			}
			golden := "testdata/requests/" + name + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
		})
	}
}
