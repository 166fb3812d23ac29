package external_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/external"
)

// An answer of a service that is longer than what is read fails by that limit, and one whose members are of another kind by their names. What is no JSON
// object is no result, however long it is.
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
		"broken":           {`{"answer":`, `answered what is not JSON such as {"answer": "391", "reward": 1}: unexpected end of JSON input`},
		"a number":         {`{"answer": 391}`, `answered what is not such as {"answer": "391", "reward": 1}: a JSON number does not fit answer`},
		"a reward of text": {`{"answer": "391", "reward": "1"}`, `answered what is not such as {"answer": "391", "reward": 1}: a JSON string does not fit reward`},
	} {
		t.Run(name, func(t *testing.T) {
			end, url, err := served(t, c.body)
			if c.wrong != "" {
				require.EqualError(t, err, "the agent's service "+url+" "+c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, strings.HasPrefix(c.body, "{"), end.Answer != nil)
		})
	}
}

// served is what a run gets of a service that answers body.
func served(t *testing.T, body string) (end external.Ended, url string, err error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }))
	defer server.Close()
	end, err = (&external.Callback{URL: server.URL}).Run(t.Context(), assignment("train-0-0-0"))
	return end, server.URL, err
}

// An error that a service answers fails the trajectory, and so does a misspelt key, whose reward or answer would be missing.
func TestAServiceThatFailsOrMisspells(t *testing.T) {
	for body, wrong := range map[string]string{
		`{"answer":"391","rewrad":1}`:                       `the agent's service URL answered the unknown key "rewrad" (did you mean "reward"?)`,
		`{"answer":"391","rewerd":1}`:                       `the agent's service URL answered the unknown key "rewerd" (did you mean "reward"?)`,
		`{"answer":"391","Reard":1}`:                        `the agent's service URL answered the unknown key "Reard" (did you mean "reward"?)`,
		`{"reward":1,"anwser":"391"}`:                       `the agent's service URL answered the unknown key "anwser" (did you mean "answer"?)`,
		`{"reward":1,"annswer":"391"}`:                      `the agent's service URL answered the unknown key "annswer" (did you mean "answer"?)`,
		`{"rewards":1}`:                                     `the agent's service URL answered the unknown key "rewards" (did you mean "reward"?)`,
		`{"error":"the browser crashed"}`:                   `the agent says: the browser crashed`,
		`{"answer":"391","reward":1,"error":"judged late"}`: `the agent says: judged late`,
		`{"reward":1,"error":true}`:                         `the agent says: true`,
		`{"reward":1,"error":7}`:                            `the agent says: 7`,
		`{"error": {"code": 7,
			"message": "crashed"}}`: `the agent says: {"code":7,"message":"crashed"}`,
		`{"error":["` + strings.Repeat("x", 300) + `"]}`: `the agent says: ["` + strings.Repeat("x", 198) + `…`,
	} {
		_, url, err := served(t, body)
		require.EqualError(t, err, strings.ReplaceAll(wrong, "URL", url), body)
	}
}

// An error that says nothing is none. Keys that are not misspelt ones are the service's own, also where they are near to those of a result or begin as
// they do.
func TestWhatElseAServiceAnswers(t *testing.T) {
	for body, want := range map[string]string{
		`{"reward":1,"error":null}`:                           `{"answer":null,"reward":1}`,
		`{"reward":1,"error":""}`:                             `{"answer":null,"reward":1}`,
		`{"answer":"391","error":false}`:                      `{"answer":"391","reward":null}`,
		`{"reward":1,"error":0}`:                              `{"answer":null,"reward":1}`,
		`{"reward":1,"error":{}}`:                             `{"answer":null,"reward":1}`,
		`{"reward":1,"error":[ ]}`:                            `{"answer":null,"reward":1}`,
		`{"Reward":1,"reward_parts":{"format":1}}`:            `{"answer":null,"reward":1}`,
		`{"status":"done","reward":1,"steps":[],"score":0.5}`: `{"answer":null,"reward":1}`,
		`{"answer":"391","record":{"steps":3}}`:               `{"answer":"391","reward":null}`,
		`{"reward":1,"answered":true}`:                        `{"answer":null,"reward":1}`,
		`{"reward":1,"answer_tokens":3}`:                      `{"answer":null,"reward":1}`,
		`{"answer":"x","reward_model":"m"}`:                   `{"answer":"x","reward":null}`,
	} {
		end, _, err := served(t, body)
		require.NoError(t, err, body)
		got, err := json.Marshal(end)
		require.NoError(t, err)
		require.Equal(t, want, string(got), body)
	}
}
