package corpus

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentfly/agentfly/tools"
)

// Amounts reads top_k and max_chars of a retrieval tool: nil is 3 and 1,000.
func Amounts(topK, maxChars *int) (k, chars int, err error) {
	k, chars = 3, 1000
	if topK != nil {
		k = *topK
	}
	if maxChars != nil {
		chars = *maxChars
	}
	if k < 1 || k > 100 {
		return 0, 0, fmt.Errorf("top_k is %d; allowed is 1 to 100", k)
	}
	if chars < 0 {
		return 0, 0, fmt.Errorf("max_chars is %d; allowed is 0 (all) or more", chars)
	}
	return k, chars, nil
}

// Hit is a passage that a query found.
type Hit struct {
	Passage
	Score float64 // the cosine, where passages are found by meaning
}

type tool struct {
	spec     tools.Spec
	query    func(ctx context.Context, text string, k int) ([]Hit, error)
	k, chars int
}

// NewTool makes a tool whose argument is the query that k passages are found for.
func NewTool(spec tools.Spec, query func(ctx context.Context, text string, k int) ([]Hit, error), k, maxChars int) tools.Tool {
	return &tool{spec, query, k, maxChars}
}

func (t *tool) Spec() tools.Spec { return t.spec }

// Call observes the text of Layout, and for rewards the ids and scores.
func (t *tool) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	var a struct{ Query string }
	if err := json.Unmarshal(c.Arguments, &a); err != nil {
		return tools.Observation{}, fmt.Errorf("%s: the arguments cannot be read; give a query", t.spec.Name)
	}
	hits, err := t.query(ctx, a.Query, t.k)
	if err != nil {
		return tools.Observation{}, err
	}
	passages, ids, scores := make([]Passage, len(hits)), make([]string, len(hits)), make([]float64, len(hits))
	for i, h := range hits {
		passages[i], ids[i], scores[i] = h.Passage, h.ID, h.Score
	}
	return tools.Observation{Text: Layout(passages, t.chars), Info: map[string]any{"ids": ids, "scores": scores}}, nil
}
