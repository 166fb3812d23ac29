package dense

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

const key = "sk-secret-17"

// stand is a server with OpenAI's interface: the vector of a text counts its letters a, b, c. Answers come in the order that it likes.
func stand(t *testing.T, before func(w http.ResponseWriter, q *http.Request, n int64) (done bool)) (url string, count *atomic.Int64) {
	t.Helper()
	count = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := count.Add(1)
		if before != nil && before(w, q, n) {
			return
		}
		var body struct {
			Input  []string `json:"input"`
			Model  string   `json:"model"`
			Format string   `json:"encoding_format"`
		}
		err := json.NewDecoder(q.Body).Decode(&body)
		if err != nil || q.Method != http.MethodPost || q.URL.Path != "/v1/embeddings" || q.Header.Get("Authorization") != "Bearer "+key || body.Model != "letters" || body.Format != "float" {
			http.Error(w, `{"error": {"message": "bad request"}}`, http.StatusBadRequest)
			return
		}
		var rows []string
		for i := len(body.Input) - 1; i >= 0; i-- {
			s := body.Input[i]
			rows = append(rows, fmt.Sprintf(`{"object": "embedding", "index": %d, "embedding": [%d, %d, %d]}`, i, strings.Count(s, "a"), strings.Count(s, "b"), strings.Count(s, "c")))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object": "list", "model": "letters", "data": [%s]}`, strings.Join(rows, ","))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", count
}

func newEndpoint(t *testing.T, url string) *endpoint {
	t.Helper()
	e, err := NewEndpoint(url, "letters", key)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	out, ok := e.(*endpoint)
	require.True(t, ok)
	out.retry.Sleep = func(context.Context, time.Duration) error { return nil }
	return out
}

func TestEndpoint(t *testing.T) {
	url, count := stand(t, nil)
	e := newEndpoint(t, url+"/")
	require.Equal(t, "endpoint "+url+" letters", e.Name())
	texts := make([]string, 150)
	for i := range texts {
		texts[i] = strings.Repeat("a", i) + "bb"
	}
	v, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.EqualValues(t, 3, count.Load())
	require.Equal(t, 150, v.N())
	for i := range texts {
		require.Equal(t, []float32{float32(i), 2, 0}, v.Row(i))
	}
}

func TestEndpointIsAskedAgain(t *testing.T) {
	url, count := stand(t, func(w http.ResponseWriter, _ *http.Request, n int64) bool {
		switch n {
		case 1:
			http.Error(w, "{}", http.StatusTooManyRequests)
		case 2:
			http.Error(w, "", http.StatusBadGateway)
		case 3:
			panic(http.ErrAbortHandler) // the connection breaks
		}
		return n < 4 && n > 0
	})
	v, err := newEndpoint(t, url).Embed(t.Context(), []string{"abc"})
	require.NoError(t, err)
	require.Equal(t, []float32{1, 1, 1}, v.Values)
	require.EqualValues(t, 4, count.Load())
}

func TestEndpointFails(t *testing.T) {
	answer := func(status int, body string) func(http.ResponseWriter, *http.Request, int64) bool {
		return func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
			return true
		}
	}
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"wrong key", 401, `{"error": {"message": "Incorrect API key provided: ` + key + `"}}`, "answered 401: Incorrect API key provided: ***"},
		{"busy", 429, `{"error": {"message": "slow down"}}`, "answered 429: slow down"},
		{"broken", 500, "<html>" + key, "answered 500"},
		{"redirect", 302, "", "answered something that is not a list of vectors"},
		{"not JSON", 200, "hello " + key, "answered something that is not a list of vectors"},
		{"too few", 200, `{"data": []}`, "gave 0 vectors for 2 texts"},
		{"index twice", 200, `{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}`, "gave a vector with index 0, out of range or twice"},
		{"index out of range", 200, `{"data": [{"index": 0, "embedding": [1]}, {"index": 2, "embedding": [1]}]}`, "gave a vector with index 2, out of range or twice"},
		{"lengths", 200, `{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}`, "gave vectors of length 1 and of length 2"},
		{"empty", 200, `{"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]}`, "gave vectors of length 0 and of length 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := stand(t, answer(c.status, c.body))
			_, err := newEndpoint(t, url).Embed(t.Context(), []string{"a", "b"})
			var broken *tools.BrokenError
			require.ErrorAs(t, err, &broken)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), key)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	url, _ := stand(t, nil)
	e := newEndpoint(t, strings.Replace(url, "/v1", "/v2", 1))
	_, err := e.Embed(t.Context(), []string{"a"})
	require.ErrorContains(t, err, "answered 400: bad request")
	closed := httptest.NewServer(nil)
	closed.Close()
	_, err = newEndpoint(t, closed.URL+"/v1").Embed(t.Context(), []string{"a"})
	require.EqualError(t, err, "dense: the embedding endpoint cannot be reached")
}

func TestOneFailureEndsTheOtherRequests(t *testing.T) {
	url, _ := stand(t, func(w http.ResponseWriter, q *http.Request, n int64) bool {
		if n == 1 {
			http.Error(w, `{"error": {"message": "no"}}`, http.StatusBadRequest)
			return true
		}
		_, _ = http.MaxBytesReader(w, q.Body, 1<<20).Read(make([]byte, 1<<20)) // so that the server sees the client leave
		<-q.Context().Done()
		return true
	})
	_, err := newEndpoint(t, url).Embed(t.Context(), make([]string, 1000))
	require.EqualError(t, err, "dense: the embedding endpoint answered 400: no")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = newEndpoint(t, url).Embed(ctx, []string{"a"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestToolOfAJob(t *testing.T) {
	url, _ := stand(t, nil)
	r := resources.New(resources.Options{Cache: t.TempDir()})
	defer func() { require.NoError(t, r.Close()) }()
	catalog := tools.NewCatalog()
	require.NoError(t, catalog.Add(Name, "x", Factory(nil)))
	path := write(t, passages...)
	made, err := catalog.Make(t.Context(), r, tools.Ref{Name: Name, Params: map[string]any{
		"corpus": []any{path}, "url": url, "model": "letters", "api_key": key, "top_k": 2,
	}})
	require.NoError(t, err)
	registry := tools.NewRegistry(tools.Options{})
	require.NoError(t, registry.Register(made...))
	require.False(t, registry.Specs()[0].Deterministic)
	got := registry.Invoke(t.Context(), "t", trajectory.ToolCall{Name: "dense_search", Arguments: []byte(`{"query": "bc"}`)})
	require.False(t, got.Failed, got.Observation)
	require.Equal(t, "Doc 1(Title: b) b\nDoc 2 ab", got.Observation)
}

func TestParamsOfAJob(t *testing.T) {
	path := write(t, passages...)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.Mkdir(empty, 0o700))
	for _, c := range []struct {
		params map[string]any
		want   string
	}{
		{map[string]any{"corpus": path}, "model is missing: the folder of a static sentence model"},
		{map[string]any{"corpus": path, "model": empty}, "a static sentence model is a folder with model.safetensors and tokenizer.json"},
		{map[string]any{"corpus": path, "url": "http://x/v1"}, "model is missing: the name of the model at the endpoint"},
		{map[string]any{"corpus": path, "url": "ftp://x", "model": "m"}, "url is not the address of an endpoint"},
		{map[string]any{"corpus": path, "url": "http://u:" + key + "@x", "model": "m"}, "url is not the address of an endpoint"},
		{map[string]any{"corpus": path, "model": "m", "api_key": key}, "api_key without url"},
		{map[string]any{"url": "http://127.0.0.1:1", "model": "m"}, "no file is named"},
	} {
		r := resources.New(resources.Options{Cache: t.TempDir()})
		_, err := Factory(nil)(t.Context(), r, c.params)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), key)
		require.NoError(t, r.Close())
	}
}
