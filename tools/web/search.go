package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/corpus"
)

// SearchName is the name of the tool that asks a search service.
const SearchName = "web_search"

// Environment variables that stand for parameters that a job leaves out.
const (
	URLVariable = "SERPER_URL"
	KeyVariable = "SERPER_API_KEY"
)

const (
	defaultURL  = "https://google.serper.dev"
	searchTime  = 20 * time.Second // of one call, attempts included
	answerBytes = 1 << 20
)

// SearchParams are those of web_search in a job.
type SearchParams struct {
	URL      string `json:"url"`       // of the service, without /search; the environment's SERPER_URL; https://google.serper.dev
	APIKey   string `json:"api_key"`   // the environment's SERPER_API_KEY
	TopK     *int   `json:"top_k"`     // results of an answer, 1 to 100; 3
	MaxChars *int   `json:"max_chars"` // of a result; 1,000
}

// Search makes the tool "web_search": POST URL/search {"q", "num"} with the key in X-API-KEY.
func Search(_ context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	var p SearchParams
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.URL == "" {
		p.URL = os.Getenv(URLVariable)
	}
	if p.URL == "" {
		p.URL = defaultURL
	}
	if p.APIKey == "" {
		p.APIKey = os.Getenv(KeyVariable)
	}
	s, err := newSearcher(p)
	if err != nil {
		return nil, err
	}
	r.OnClose(s.close)
	return []tools.Tool{s}, nil
}

type searcher struct {
	url       string
	key       string
	k, chars  int
	transport *http.Transport
	retry     *retry.Transport
	client    *http.Client
}

func newSearcher(p SearchParams) (*searcher, error) {
	k, chars, err := corpus.Amounts(p.TopK, p.MaxChars)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, errors.New("url is not the address of a search service; write https://HOST")
	}
	if p.APIKey == "" {
		return nil, fmt.Errorf("no key: set %s in the environment, or api_key: ${NAME} in the job", KeyVariable)
	}
	if strings.Trim(p.APIKey, " ") != p.APIKey || strings.ContainsFunc(p.APIKey, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("the key has characters that no key has; is there a line break in it?")
	}
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{}
	}
	s := &searcher{url: strings.TrimRight(u.String(), "/") + "/search", key: p.APIKey, k: k, chars: chars, transport: t.Clone()}
	s.retry = &retry.Transport{Base: s.transport}
	s.client = &http.Client{
		Transport:     s.retry,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the key goes nowhere else
	}
	return s, nil
}

func (s *searcher) close() error {
	s.transport.CloseIdleConnections()
	return nil
}

func (s *searcher) Spec() tools.Spec {
	return tools.Spec{
		Name:        SearchName,
		Description: fmt.Sprintf("Searches the web and returns the title, an excerpt and the address of the first %d pages.", s.k),
		Parameters:  json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"what to look for"}},"required":["query"],"additionalProperties":false}`),
		Limits:      tools.Limits{Timeout: searchTime + time.Second},
		Idempotent:  true,
	}
}

func (s *searcher) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	var a struct{ Query string }
	if err := json.Unmarshal(c.Arguments, &a); err != nil {
		return tools.Observation{}, errors.New("web_search: the arguments cannot be read; give a query")
	}
	a.Query = strings.Join(strings.Fields(a.Query), " ")
	if a.Query == "" || len(a.Query) > maxURL {
		return tools.Observation{}, fmt.Errorf("web_search: the query has %d characters; allowed are 1 to %d", len(a.Query), maxURL)
	}
	inner, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	o, err := s.search(inner, a.Query)
	if err != nil {
		return tools.Observation{}, failure(ctx, inner, SearchName, "the search service", err)
	}
	return o, nil
}

// found is the part of the service's answer that is read.
type found struct {
	AnswerBox struct {
		Answer  string `json:"answer"`
		Snippet string `json:"snippet"`
	} `json:"answerBox"`
	KnowledgeGraph struct {
		Title       string `json:"title"`
		Description string `json:"description"`
	} `json:"knowledgeGraph"`
	Organic []struct {
		Title   string `json:"title"`
		Link    string `json:"link"`
		Snippet string `json:"snippet"`
	} `json:"organic"`
}

func (s *searcher) search(ctx context.Context, query string) (tools.Observation, error) {
	body, err := json.Marshal(struct {
		Query string `json:"q"`
		Num   int    `json:"num"`
	}{query, s.k})
	if err != nil {
		return tools.Observation{}, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return tools.Observation{}, err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-API-KEY", s.key)
	q.Header.Set("User-Agent", agent)
	r, err := s.client.Do(q)
	if err != nil {
		return tools.Observation{}, err
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden:
		return tools.Observation{}, &statusError{text: "refused the key: check " + KeyVariable, busy: true} // the tool's fault, not the model's
	case r.StatusCode != http.StatusOK:
		return tools.Observation{}, answered(r)
	}
	var f found
	if err := json.NewDecoder(io.LimitReader(r.Body, answerBytes)).Decode(&f); err != nil {
		if ctx.Err() != nil {
			return tools.Observation{}, err
		}
		return tools.Observation{}, &statusError{text: "answered something else than JSON", busy: true}
	}
	return s.observe(f), nil
}

func (s *searcher) observe(f found) tools.Observation {
	var passages []corpus.Passage
	links := []string{}
	for _, o := range f.Organic[:min(s.k, len(f.Organic))] {
		text := corpus.Clip(strings.Join(strings.Fields(o.Snippet), " "), s.chars)
		passages = append(passages, corpus.Passage{Title: o.Title, Text: text + "\n" + o.Link})
		links = append(links, o.Link)
	}
	text := corpus.Layout(passages, 0)
	answer := f.AnswerBox.Answer
	if answer == "" {
		answer = f.AnswerBox.Snippet
	}
	if answer == "" && f.KnowledgeGraph.Description != "" {
		answer = f.KnowledgeGraph.Title + ": " + f.KnowledgeGraph.Description
	}
	switch {
	case answer != "" && len(passages) > 0:
		text = "Answer: " + corpus.Clip(answer, s.chars) + "\n" + text
	case answer != "":
		text = "Answer: " + corpus.Clip(answer, s.chars)
	}
	return tools.Observation{Text: text, Info: map[string]any{"links": links}}
}
