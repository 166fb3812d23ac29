package external_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/trajectory"
)

// The hosts that an agent's clients reach without a proxy are the user's, this machine and the gateway's, under both names of the variable, whichever of
// them the user gave. What agent.env says of a name stands as it is.
func TestHostsWithoutAProxy(t *testing.T) {
	const away = "http://10.0.0.5:1"
	for name, c := range map[string]struct {
		upper, lower         string // of this process
		env                  map[string]string
		url                  string
		wantUpper, wantLower string
	}{
		"of nobody":             {"", "", nil, "http://127.0.0.1:1", "127.0.0.1,localhost", "127.0.0.1,localhost"},
		"of the user":           {".corp", "", nil, away, ".corp,127.0.0.1,localhost,10.0.0.5", ".corp,127.0.0.1,localhost,10.0.0.5"},
		"in small letters":      {"", ".corp", nil, away, ".corp,127.0.0.1,localhost,10.0.0.5", ".corp,127.0.0.1,localhost,10.0.0.5"},
		"two of them":           {".a", ".b", nil, away, ".a,127.0.0.1,localhost,10.0.0.5", ".b,127.0.0.1,localhost,10.0.0.5"},
		"a host that is there":  {"10.0.0.5, localhost", "", nil, away, "10.0.0.5, localhost,127.0.0.1", "10.0.0.5, localhost,127.0.0.1"},
		"every host":            {"*", "", nil, away, "*", "*"},
		"an address of IPv6":    {"", "", nil, "http://[fd00::1]:1", "127.0.0.1,localhost,fd00::1", "127.0.0.1,localhost,fd00::1"},
		"of agent.env":          {".corp", ".corp", map[string]string{"NO_PROXY": "x", "no_proxy": "y"}, away, "x", "y"},
		"one name of agent.env": {".corp", ".corp", map[string]string{"NO_PROXY": "x"}, away, "x", "x,127.0.0.1,localhost,10.0.0.5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_PROXY", c.upper)
			t.Setenv("no_proxy", c.lower)
			a := assignment("train-0-0-0")
			a.URL = c.url
			agent := &external.Command{Args: []string{"sh", "-c", `echo "$NO_PROXY"; echo "$no_proxy"`}, Folder: t.TempDir(), Env: c.env}
			end, err := agent.Run(t.Context(), a)
			require.NoError(t, err, end.Output)
			require.Equal(t, []string{c.wantUpper, c.wantLower}, strings.Split(strings.TrimSpace(end.Output), "\n"))
		})
	}
}

// The task of an agent has its fields, also where there are none, as in a chat.
func TestATaskWithoutFields(t *testing.T) {
	for fields, a := range map[string]external.Assignment{`{}`: {ID: "chat-0-0-0"}, `{"answer":2}`: {Task: trajectory.Task{Fields: map[string]any{"answer": 2}}}} {
		a.Key = "sk"
		agent := &external.Command{Args: []string{"sh", "-c", `cat "$AGENTFLY_TASK"`}, Folder: t.TempDir()}
		end, err := agent.Run(t.Context(), a)
		require.NoError(t, err, end.Output)
		var told struct {
			ID   string `json:"id"`
			Key  string `json:"api_key"`
			Task struct{ Fields json.RawMessage }
		}
		require.NoError(t, json.Unmarshal([]byte(end.Output), &told), end.Output)
		require.Equal(t, []string{a.ID, "sk", fields}, []string{told.ID, told.Key, string(told.Task.Fields)}, end.Output)
	}
}

// A result that is none fails the trajectory in words of JSON, and so does one with a misspelt key, whose reward would be missing.
func TestResultsThatAreNone(t *testing.T) {
	for result, says := range map[string]string{
		`no`:              `is not JSON such as {"answer": "391", "reward": 1}: invalid character`,
		`[1]`:             `is not such as {"answer": "391", "reward": 1}: a JSON array does not fit the whole`,
		`{"reward":true}`: `is not such as {"answer": "391", "reward": 1}: a JSON bool does not fit reward`,
		`{"answer":2}`:    `is not such as {"answer": "391", "reward": 1}: a JSON number does not fit answer`,
		`{"rewards":1}`:   `has the unknown key "rewards" (did you mean "reward"?); allowed: answer, reward`,
		`{"score":0.5}`:   `has the unknown key "score"; allowed: answer, reward`,
	} {
		agent := &external.Command{Args: []string{"sh", "-c", `printf %s "$0" >"$AGENTFLY_RESULT"`, result}, Folder: t.TempDir()}
		_, err := agent.Run(t.Context(), assignment("train-0-0-0"))
		require.ErrorContains(t, err, "the agent's result (AGENTFLY_RESULT) "+says, result)
		require.NotContains(t, err.Error(), "Go")
	}
}
