package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

const key = "k-secret-17"

const answer = `{"searchParameters": {"q": "go"}, "organic": [
	{"title": "The Go Language", "link": "https://go.dev/", "snippet": "Build simple,\n  secure systems.", "position": 1},
	{"title": "Go (game)", "link": "https://en.wikipedia.org/wiki/Go_(game)", "snippet": "A board game", "sitelinks": []},
	{"title": "Third", "link": "https://third.example/", "snippet": "beyond top_k"}], "credits": 1}`

// service is a stand-in with Serper's interface.
func service(t *testing.T, h func(w http.ResponseWriter, query string, n int64)) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := asked.Add(1)
		body, err := io.ReadAll(q.Body)
		var asks struct {
			Query string `json:"q"`
			Num   int    `json:"num"`
		}
		if err != nil || q.Method != http.MethodPost || q.URL.Path != "/v/search" || q.Header.Get("Content-Type") != "application/json" || json.Unmarshal(body, &asks) != nil || asks.Num != 2 {
			t.Errorf("%s %s %v: %s, %v", q.Method, q.URL, q.Header, body, err)
		}
		if q.Header.Get("X-API-KEY") != key {
			http.Error(w, `{"message": "Unauthorized."}`, http.StatusForbidden)
			return
		}
		h(w, asks.Query, n)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v", asked
}

func newSearch(t *testing.T, url, key string) *searcher {
	t.Helper()
	two := 2
	s, err := newSearcher(SearchParams{URL: url, APIKey: key, TopK: &two})
	require.NoError(t, err)
	s.retry.Sleep = func(context.Context, time.Duration) error { return nil }
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

func ask(t *testing.T, s *searcher, query string) (string, error) {
	t.Helper()
	o, err := s.Call(t.Context(), tools.Call{Arguments: []byte(fmt.Sprintf(`{"query": %q}`, query))})
	if err != nil {
		require.NotContains(t, err.Error(), key)
		require.NotContains(t, err.Error(), "127.0.0.1")
		require.NotContains(t, err.Error(), "\n")
	}
	return o.Text, err
}

func TestWebSearch(t *testing.T) {
	url, _ := service(t, func(w http.ResponseWriter, query string, _ int64) {
		switch query {
		case "go lang":
			fmt.Fprint(w, answer)
		case "box":
			fmt.Fprint(w, `{"answerBox": {"snippet": "42"}, "organic": [{"title": "T", "link": "https://t.example/", "snippet": "s"}]}`)
		case "graph":
			fmt.Fprint(w, `{"knowledgeGraph": {"title": "Paris", "description": "Capital of France"}, "organic": []}`)
		default:
			fmt.Fprint(w, `{}`)
		}
	})
	s := newSearch(t, url+"/", key)
	for query, want := range map[string]string{
		" go\n lang ": "Doc 1(Title: The Go Language) Build simple, secure systems.\nhttps://go.dev/\nDoc 2(Title: Go (game)) A board game\nhttps://en.wikipedia.org/wiki/Go_(game)",
		"box":         "Answer: 42\nDoc 1(Title: T) s\nhttps://t.example/",
		"graph":       "Answer: Paris: Capital of France",
		"nothing":     "No passage matches; try other words.",
	} {
		got, err := ask(t, s, query)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, query := range []string{"", " \n", strings.Repeat("x", 3000)} {
		_, err := ask(t, s, query)
		require.ErrorContains(t, err, "allowed are 1 to 2048")
	}
}

func TestWebSearchIsAskedAgain(t *testing.T) {
	url, asked := service(t, func(w http.ResponseWriter, _ string, n int64) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, answer)
		}
	})
	got, err := ask(t, newSearch(t, url, key), "go")
	require.NoError(t, err)
	require.Contains(t, got, "https://go.dev/")
	require.EqualValues(t, 3, asked.Load())
}

func TestWebSearchFails(t *testing.T) {
	for _, c := range []struct {
		name string
		h    func(w http.ResponseWriter, query string, n int64)
		want string
	}{
		{"busy", func(w http.ResponseWriter, _ string, _ int64) { http.Error(w, key, http.StatusTooManyRequests) }, "web_search: the search service answered 429 Too Many Requests"},
		{"broken", func(w http.ResponseWriter, _ string, _ int64) { http.Error(w, key, http.StatusBadGateway) }, "web_search: the search service answered 502 Bad Gateway"},
		{"refused", func(w http.ResponseWriter, _ string, _ int64) { http.Error(w, key, http.StatusUnauthorized) }, "web_search: the search service refused the key: check SERPER_API_KEY"},
		{"not JSON", func(w http.ResponseWriter, _ string, _ int64) { fmt.Fprint(w, "<html>"+key) }, "web_search: the search service answered something else than JSON"},
		{"redirect", func(w http.ResponseWriter, _ string, _ int64) {
			w.Header().Set("Location", "http://evil.example/"+key)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "web_search: the search service answered 307 Temporary Redirect"},
		{"no such path", func(w http.ResponseWriter, _ string, _ int64) { http.Error(w, key, http.StatusNotFound) }, "web_search: the search service answered 404 Not Found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := service(t, c.h)
			_, err := ask(t, newSearch(t, url, key), "go")
			require.EqualError(t, err, c.want)
		})
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	_, err := ask(t, newSearch(t, closed.URL, key), "go")
	require.EqualError(t, err, "web_search: the search service cannot be reached")
}

func TestWebSearchOfAJob(t *testing.T) {
	url, _ := service(t, func(w http.ResponseWriter, _ string, _ int64) { fmt.Fprint(w, answer) })
	t.Setenv(URLVariable, url)
	t.Setenv(KeyVariable, key)
	r := resources.New(resources.Options{})
	defer func() { require.NoError(t, r.Close()) }()
	catalog := tools.NewCatalog()
	require.NoError(t, catalog.Add(SearchName, "x", Search))
	made, err := catalog.Make(t.Context(), r, tools.Ref{Name: SearchName, Params: map[string]any{"top_k": 2}})
	require.NoError(t, err)
	registry := tools.NewRegistry(tools.Options{})
	require.NoError(t, registry.Register(made...))
	got := registry.Invoke(t.Context(), "t", trajectory.ToolCall{Name: SearchName, Arguments: []byte(`{"query": "go"}`)})
	require.False(t, got.Failed, got.Observation)
	require.Contains(t, got.Observation, "Doc 2(Title: Go (game)) A board game\nhttps://en.wikipedia.org/wiki/Go_(game)")
	spec := registry.Specs()[0]
	require.True(t, spec.Idempotent && !spec.Deterministic)

	t.Setenv(KeyVariable, "")
	for _, c := range []struct {
		params map[string]any
		want   string
	}{
		{nil, "no key: set SERPER_API_KEY in the environment, or api_key: ${NAME} in the job"},
		{map[string]any{"api_key": key + "\n"}, "the key has characters that no key has"},
		{map[string]any{"api_key": key, "url": "go.dev"}, "url is not the address of a search service"},
		{map[string]any{"api_key": key, "url": "https://me:" + key + "@go.dev"}, "url is not the address of a search service"},
		{map[string]any{"api_key": key, "top_k": 101}, "top_k is 101"},
		{map[string]any{"key": key}, `unknown field "key"`},
	} {
		_, err := Search(t.Context(), r, c.params)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), key)
	}
}
