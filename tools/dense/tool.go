package dense

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/corpus"
)

// Name of the tool.
const Name = "dense_search"

// Params of the tool in a job.
type Params struct {
	Corpus        corpus.Files `json:"corpus"`         // one file or several
	Model         string       `json:"model"`          // folder of a static sentence model; with url the model's name at the endpoint
	URL           string       `json:"url"`            // of an OpenAI-compatible endpoint, as https://HOST/v1; "": a local model
	APIKey        string       `json:"api_key"`        // of the endpoint; "": none is sent
	QueryPrefix   string       `json:"query_prefix"`   // as E5's "query: "
	PassagePrefix string       `json:"passage_prefix"` // as E5's "passage: "
	TopK          *int         `json:"top_k"`          // passages of an answer, 1 to 100; 3
	MaxChars      *int         `json:"max_chars"`      // of a passage's text; 0 is all; 1,000
}

// Factory makes the tool "dense_search". load reads the tokenizer of a local model's folder.
func Factory(load func(dir string) (Tokenizer, error)) tools.Factory {
	return func(ctx context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
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
		cache, err := r.Cache("dense")
		if err != nil {
			return nil, err
		}
		e, err := embedder(r, p, load)
		if err != nil {
			return nil, err
		}
		if p.URL != "" {
			if err := r.Run("the corpus of " + Name + ", whose passages are not sent to its url"); err != nil {
				return nil, errors.Join(err, e.Close())
			}
		}
		x, err := Open(ctx, files, cache, e, Options{p.QueryPrefix, p.PassagePrefix, r.Warn})
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		r.OnClose(x.Close)
		return []tools.Tool{corpus.NewTool(tools.Spec{
			Name:          Name,
			Description:   fmt.Sprintf("Searches a collection of passages by meaning and returns the %d that are nearest to the query.", k),
			Parameters:    json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"a question or a description of what to look for"}},"required":["query"],"additionalProperties":false}`),
			Idempotent:    true,
			Deterministic: p.URL == "", // an endpoint may batch, and its vectors differ in the last bits
		}, x.Query, k, chars)}, nil
	}
}

func embedder(r *resources.Resources, p Params, load func(dir string) (Tokenizer, error)) (Embedder, error) {
	switch {
	case p.URL != "":
		return NewEndpoint(p.URL, p.Model, p.APIKey)
	case p.APIKey != "":
		return nil, errors.New("api_key without url: a local model needs no key")
	case p.Model == "":
		return nil, errors.New("model is missing: the folder of a static sentence model, or url and the name of a model there")
	}
	return NewStatic(r.Resolve(p.Model), load)
}
