package external_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/external"
)

// An answer of a service that is longer than what is read fails by that limit. What is no JSON object is no result, however long it is.
func TestALongAnswerOfAService(t *testing.T) {
	object := func(size int) string {
		const around = `{"answer":""}`
		return `{"answer":"` + strings.Repeat("x", size-len(around)) + `"}`
	}
	for name, c := range map[string]struct{ body, wrong string }{
		"up to the limit":  {object(65536), ""},
		"beyond the limit": {object(65537), "answered with more than 65536 bytes, which are the most that are read"},
		"far beyond it":    {object(70_000), "answered with more than 65536 bytes, which are the most that are read"},
		"a text":           {strings.Repeat("x", 70_000), ""},
		"broken":           {`{"answer":`, "answered no JSON: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.body) }))
			defer server.Close()
			end, err := (&external.Callback{URL: server.URL}).Run(t.Context(), assignment("train-0-0-0"))
			if c.wrong != "" {
				require.EqualError(t, err, "the agent's service "+server.URL+" "+c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, strings.HasPrefix(c.body, "{"), end.Answer != nil)
		})
	}
}

// An error that a service answers fails the trajectory, and so does a misspelt key, whose reward or answer would be missing. Other keys are the service's own.
func TestAServiceThatFailsOrMisspells(t *testing.T) {
	for body, wrong := range map[string]string{
		`{"answer":"391","rewrad":1}`:                         `the agent's service URL answered the unknown key "rewrad" (did you mean "reward"?)`,
		`{"reward":1,"anwser":"391"}`:                         `the agent's service URL answered the unknown key "anwser" (did you mean "answer"?)`,
		`{"rewards":1}`:                                       `the agent's service URL answered the unknown key "rewards" (did you mean "reward"?)`,
		`{"error":"the browser crashed"}`:                     `the agent says: the browser crashed`,
		`{"answer":"391","reward":1,"error":"judged late"}`:   `the agent says: judged late`,
		`{"reward":1,"error":null}`:                           "",
		`{"reward":1,"error":""}`:                             "",
		`{"Reward":1,"reward_parts":{"format":1}}`:            "",
		`{"status":"done","reward":1,"steps":[],"score":0.5}`: "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }))
		end, err := (&external.Callback{URL: server.URL}).Run(t.Context(), assignment("train-0-0-0"))
		server.Close()
		if wrong != "" {
			require.EqualError(t, err, strings.ReplaceAll(wrong, "URL", server.URL), body)
			continue
		}
		require.NoError(t, err, body)
		require.InDelta(t, 1, *end.Reward, 0, body)
	}
}
