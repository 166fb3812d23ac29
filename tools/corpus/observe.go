package corpus

import (
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

// Observe is the observation of a retrieval: the text of Layout, and for rewards the ids and scores.
func Observe(passages []Passage, scores []float64, maxChars int) tools.Observation {
	ids := make([]string, len(passages))
	for i, p := range passages {
		ids[i] = p.ID
	}
	return tools.Observation{Text: Layout(passages, maxChars), Info: map[string]any{"ids": ids, "scores": scores}}
}
