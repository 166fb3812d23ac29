package cli

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
	pages "github.com/agentfly/agentfly/view"
)

// escapes are what a model, a tool or a program may try on the terminal of the person who reads them.
const escapes = "\x1b[2J\x1b]52;c;cm0=\x07\x1b]8;;http://evil\x1b\\\u009b1m\u202e\r"

// ours is what the view itself writes.
var ours = regexp.MustCompile("\x1b\\[(2|31|32|33|0)m")

func safe(t *testing.T, text string) {
	t.Helper()
	require.NotEmpty(t, text)
	require.NotRegexp(t, "[\x01-\x08\x0b-\x1f\x7f\u0080-\u009f\u202e]", ours.ReplaceAllString(text, ""))
}

// The page has the runs that agentfly runs lists: both look into a folder as deep.
func TestThePageHasTheRunsThatAreListed(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b/c/d/e", "b/c/d/f/g"} { // one folder deeper is too deep
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		overviewtest.Run{}.Write(t, filepath.Join(root, name))
	}
	out, _, err := command(t, "runs", "--json", root)
	require.NoError(t, err)
	listed := []string{}
	for line := range strings.Lines(out) {
		var one struct{ Dir string }
		require.NoError(t, json.Unmarshal([]byte(line), &one))
		name, err := filepath.Rel(root, one.Dir)
		require.NoError(t, err)
		listed = append(listed, name)
	}
	require.Equal(t, []string{"a", "b/c/d/e"}, listed)
	s, err := pages.New(root, pages.Options{})
	require.NoError(t, err)
	defer s.Close()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/runs", http.NoBody))
	var got struct{ Runs []struct{ Name string } }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	shown := []string{}
	for _, r := range got.Runs {
		shown = append(shown, r.Name)
	}
	require.ElementsMatch(t, listed, shown)
}

func TestViewIsSafe(t *testing.T) {
	text := []string{escapes, "plain", "\x1b", "]52;c;cm0=\x07"} // a sequence may come in several tokens
	r := store.Record{Trajectory: &trajectory.Trajectory{ID: "train-0" + escapes, Samples: []*trajectory.Sample{{
		TokenIDs: []int32{0, 1, 2, 3}, ResponseMask: []bool{false, true, true, true}, SamplingLogprobs: []float32{0, 0, -0.5, -3},
	}}}}
	out := view(r, func(ids []int32) string { return text[ids[0]] }, false)
	safe(t, out)
	require.Contains(t, out, `\x1b[2J\x1b]52;c;cm0=\x07`)
	require.Contains(t, out, "\x1b[32mplain\x1b[0m")
	out = view(r, func(ids []int32) string { return text[ids[0]] }, true)
	require.NotContains(t, out, "\x1b")
	require.Contains(t, out, `⟦plain\x1b]52;c;cm0=\x07⟧`)
}

// A number that JSON does not have is left out, and does not end the list of trajectories.
func TestInspectHasNoNumberThatJSONLacks(t *testing.T) {
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	r := store.Record{
		Trajectory: &trajectory.Trajectory{ID: "train-0", Samples: []*trajectory.Sample{{TokenIDs: []int32{1, 2}, ResponseMask: []bool{true, true}, SamplingLogprobs: []float32{inf, -1}, PolicyVersion: []int32{0, 0}}}},
		Updates:    []store.Update{{OldLogprobs: []float32{nan, -2}, Advantages: []float32{nan, 1}, Entropy: []float32{inf, 0.5}}},
	}
	body, err := json.Marshal(orchestrator.Inspect(r, func([]int32) string { return "x" }).Samples[0])
	require.NoError(t, err)
	require.JSONEq(t, `[{"id":1,"text":"x","mask":1,"policy_version":0},{"id":2,"text":"x","mask":1,"sampling_logprob":-1,"old_logprob":-2,"advantage":1,"entropy":0.5,"policy_version":0}]`, string(body))
}

// What cannot be served is wrong input, and the address that is told can be opened, also where all addresses are listened on.
func TestWhereThePageIs(t *testing.T) {
	_, _, err := command(t, "view", filepath.Join(t.TempDir(), "nowhere"))
	var wrong *job.Error
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "is no folder; name a run folder, or a folder with run folders in it")
	host, err := os.Hostname()
	require.NoError(t, err)
	for address, want := range map[string]string{"[::]:8200": host + ":8200", "0.0.0.0:8200": host + ":8200", "127.0.0.1:1": "127.0.0.1:1", "[::1]:8200": "[::1]:8200"} {
		require.Equal(t, "http://"+want+"/", pageAt(address))
	}
}

// A character that several tokens make is shown whole, where it begins.
func TestCharactersOfSeveralTokensAreShown(t *testing.T) {
	bytes := "ok \U0001f642!\xf0\x9f" // the last one was cut
	ids, mask := make([]int32, len(bytes)), make([]bool, len(bytes))
	for i := range ids {
		ids[i] = int32(bytes[i])
		mask[i] = i >= 3
	}
	decode := func(ids []int32) string {
		var b []byte
		for _, id := range ids {
			b = append(b, byte(id))
		}
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	r := store.Record{Trajectory: &trajectory.Trajectory{ID: "train-0", Samples: []*trajectory.Sample{{
		TokenIDs: ids, ResponseMask: mask, SamplingLogprobs: make([]float32, len(ids)), PolicyVersion: make([]int32, len(ids)),
	}}}}
	require.Contains(t, view(r, decode, true), "ok ⟦\U0001f642!\uFFFD\uFFFD⟧")
	require.Contains(t, view(r, decode, false), "\x1b[32m\U0001f642\x1b[0m")
	var told strings.Builder
	for _, token := range orchestrator.Inspect(r, decode).Samples[0] {
		told.WriteString(token.Text)
	}
	require.Equal(t, "ok \U0001f642!\uFFFD\uFFFD", told.String())
}
