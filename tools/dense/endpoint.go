package dense

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/tools"
)

const (
	requestTexts = 64               // of one request
	requests     = 4                // at once
	requestTime  = 60 * time.Second // attempts included
)

// endpoint asks POST URL/embeddings.
type endpoint struct {
	url, model, key string
	transport       *http.Transport
	retry           *retry.Transport
	client          *openai.Client
}

// NewEndpoint makes the embedder of an OpenAI-compatible endpoint: its URL ends where /embeddings begins, as https://HOST/v1.
func NewEndpoint(address, model, key string) (Embedder, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, errors.New("dense: url is not the address of an endpoint; write https://HOST/v1")
	}
	if model == "" {
		return nil, errors.New("dense: model is missing: the name of the model at the endpoint")
	}
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{}
	}
	e := &endpoint{url: strings.TrimRight(u.String(), "/"), model: model, key: key, transport: t.Clone()}
	e.retry = &retry.Transport{Base: e.transport, Attempts: 5}
	config := openai.DefaultConfig(key)
	config.BaseURL = e.url
	config.HTTPClient = &http.Client{
		Transport:     e.retry,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	e.client = openai.NewClientWithConfig(config)
	return e, nil
}

func (e *endpoint) Name() string { return "endpoint " + e.url + " " + e.model }

func (e *endpoint) Close() error {
	e.transport.CloseIdleConnections()
	return nil
}

// Embed sends the texts in requests of 64, several at once; the first failure ends all.
func (e *endpoint) Embed(ctx context.Context, texts []string) (Vectors, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := make([]Vectors, (len(texts)+requestTexts-1)/requestTexts)
	var wait sync.WaitGroup
	var once sync.Once
	var first error
	slots := make(chan struct{}, requests)
	for i := range parts {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			var err error
			if parts[i], err = e.request(ctx, texts[i*requestTexts:min((i+1)*requestTexts, len(texts))]); err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	wait.Wait()
	if first != nil {
		return Vectors{}, first
	}
	var all Vectors
	for _, p := range parts {
		if all.D != 0 && p.D != all.D {
			return Vectors{}, fmt.Errorf("dense: the endpoint gave vectors of length %d and of length %d", all.D, p.D)
		}
		all.D = p.D
		all.Values = append(all.Values, p.Values...)
	}
	return all, nil
}

func (e *endpoint) request(ctx context.Context, texts []string) (Vectors, error) {
	inner, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	r, err := e.client.CreateEmbeddings(inner, openai.EmbeddingRequestStrings{
		Input: texts, Model: openai.EmbeddingModel(e.model), EncodingFormat: openai.EmbeddingEncodingFormatFloat,
	})
	if err != nil {
		return Vectors{}, e.failure(ctx, inner, err)
	}
	if len(r.Data) != len(texts) {
		return Vectors{}, broken("gave %d vectors for %d texts", len(r.Data), len(texts))
	}
	var out Vectors
	seen := make([]bool, len(texts))
	for _, d := range r.Data {
		if d.Index < 0 || d.Index >= len(texts) || seen[d.Index] {
			return Vectors{}, broken("gave a vector with index %d, out of range or twice", d.Index)
		}
		seen[d.Index] = true
		if out.D == 0 {
			out = Vectors{make([]float32, len(texts)*len(d.Embedding)), len(d.Embedding)}
		}
		if len(d.Embedding) == 0 || len(d.Embedding) != out.D {
			return Vectors{}, broken("gave vectors of length %d and of length %d", out.D, len(d.Embedding))
		}
		copy(out.Row(d.Index), d.Embedding)
	}
	return out, nil
}

func broken(format string, args ...any) error {
	return &tools.BrokenError{Text: "dense: the embedding endpoint " + fmt.Sprintf(format, args...)}
}

// failure says what went wrong, without the key, which a server may repeat.
func (e *endpoint) failure(outer, inner context.Context, err error) error {
	var api *openai.APIError
	var request *openai.RequestError
	switch {
	case outer.Err() != nil:
		return outer.Err()
	case inner.Err() != nil:
		return broken("did not answer within %s", requestTime)
	case errors.As(err, &api):
		return broken("answered %d: %s", api.HTTPStatusCode, e.clean(api.Message))
	case errors.As(err, &request):
		return broken("answered %d", request.HTTPStatusCode)
	}
	var network *url.Error
	if errors.As(err, &network) {
		return broken("cannot be reached")
	}
	return broken("answered something that is not a list of vectors")
}

func (e *endpoint) clean(s string) string {
	if e.key != "" {
		s = strings.ReplaceAll(s, e.key, "***")
	}
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
