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
