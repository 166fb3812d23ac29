package search

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/corpus"
)

// Name of the tool.
const Name = "search"

// Params of the tool in a job.
type Params struct {
	Corpus   corpus.Files `json:"corpus"`    // one file or several
	TopK     *int         `json:"top_k"`     // passages of an answer, 1 to 100; 3
	MaxChars *int         `json:"max_chars"` // of a passage's text; 0 is all; 1,000
	Fields   []string     `json:"fields"`    // that are searched; title and text
}

// Factory makes the tool "search". The index is opened once and closed with the job.
func Factory(ctx context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	var p Params
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	k, chars, err := corpus.Amounts(p.TopK, p.MaxChars)
	if err != nil {
		return nil, err
	}
	files := make([]string, len(p.Corpus))
	for i, f := range p.Corpus {
		files[i] = r.Resolve(f)
	}
	cache, err := r.Cache("search")
	if err != nil {
		return nil, err
	}
	x, err := Open(ctx, files, cache, Options{Fields: p.Fields, Warn: r.Warn})
	if err != nil {
		return nil, err
	}
	r.OnClose(x.Close)
	return []tools.Tool{corpus.NewTool(tools.Spec{
		Name:          Name,
		Description:   fmt.Sprintf("Searches a collection of passages for words and returns the %d that match best.", k),
		Parameters:    json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"words to look for"}},"required":["query"],"additionalProperties":false}`),
		Idempotent:    true,
		Deterministic: true,
	}, x.Query, k, chars)}, nil
}
