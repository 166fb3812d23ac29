package retry_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	client "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/retry"
)

func TestPassing(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"error": {"message": "so"}}`, code) }
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		spoil  func(q *client.ChatCompletionRequest)
		asked  int
		want   bool
	}{
		"busy":       {answer: status(http.StatusTooManyRequests), asked: 1, want: true},
		"slow":       {answer: status(http.StatusRequestTimeout), asked: 1, want: true},
		"broken":     {answer: status(http.StatusBadGateway), asked: 1, want: true},
		"refused":    {answer: status(http.StatusBadRequest), asked: 1},
		"no error":   {answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusNotFound) }, asked: 1},
		"not JSON":   {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "not JSON") }, asked: 1, want: true},
		"other JSON": {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"choices": 3}`) }, asked: 1, want: true},
		"no answer":  {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, asked: 1, want: true},
		"cut": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"choices": [`)
		}, asked: 1, want: true},
		"a model's limits": {spoil: func(q *client.ChatCompletionRequest) { q.Model, q.Temperature = "o3-mini", 0.5 }},
		"not a chat model": {spoil: func(q *client.ChatCompletionRequest) { q.Model = client.CodexCodeDavinci002 }},
		"no body":          {spoil: func(q *client.ChatCompletionRequest) { q.ChatTemplateKwargs = map[string]any{"x": math.NaN()} }},
		"a stream":         {spoil: func(q *client.ChatCompletionRequest) { q.Stream = true }},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				asked++
				c.answer(w, q)
			}))
			base := &http.Transport{}
			config := client.DefaultConfig("")
			config.BaseURL, config.HTTPClient = s.URL, &http.Client{Transport: retry.Noting{Base: base}}
			q := client.ChatCompletionRequest{Model: "m"}
			if c.spoil != nil {
				c.spoil(&q)
			}
			var note retry.Noted
			_, err := client.NewClientWithConfig(config).CreateChatCompletion(retry.Note(t.Context(), &note), q)
			base.CloseIdleConnections()
			s.Close()
			require.Error(t, err)
			require.Equal(t, c.asked, asked)
			require.Equal(t, c.want, note.Passing(err), "%v", err)
		})
	}
}

func TestPassingWithoutAServer(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	config := client.DefaultConfig("")
	config.BaseURL, config.HTTPClient = s.URL, &http.Client{Transport: retry.Noting{Base: &http.Transport{}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var note retry.Noted
	_, err := client.NewClientWithConfig(config).CreateChatCompletion(retry.Note(ctx, &note), client.ChatCompletionRequest{Model: "m"})
	require.True(t, note.Passing(err), "%v", err)
}
