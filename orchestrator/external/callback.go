package external

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// Callback asks a service to run the agent: it posts the assignment and waits for the answer, which may be empty, {"answer": …, "reward": …} or
// {"error": "why"}.
type Callback struct {
	URL    string
	Client *http.Client // nil: one without a deadline of its own
}

// Enter implements Runner.
func (c *Callback) Enter(ctx context.Context) (leave func(), err error) { return func() {}, ctx.Err() }

// Run implements Runner.
func (c *Callback) Run(ctx context.Context, a Assignment) (end Ended, err error) {
	body, err := json.Marshal(a)
	if err != nil {
		return end, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return end, err
	}
	r.Header.Set("Content-Type", "application/json")
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	reply, err := client.Do(r)
	if err != nil {
		return end, fmt.Errorf("the agent's service: %w", err)
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(io.LimitReader(reply.Body, most+1))
	if err != nil {
		return end, fmt.Errorf("the agent's service: %w", err)
	}
	if reply.StatusCode >= http.StatusMultipleChoices {
		return end, fmt.Errorf("the agent's service %s answered %s: %s", c.URL, reply.Status, wording.Clip(strings.TrimSpace(string(data)), 200))
	}
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '{' {
		if len(data) > most {
			return end, fmt.Errorf("the agent's service %s answered with more than %d bytes, which are the most that are read", c.URL, most)
		}
		var r struct {
			Ended
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			_, err = wording.NotSuch(err, such)
			return end, fmt.Errorf("the agent's service %s answered what %w", c.URL, err)
		}
		if key, meant := misspelt(text); key != "" {
			return end, fmt.Errorf("the agent's service %s answered the unknown key %q (did you mean %q?)", c.URL, wording.Clip(key, 40), meant)
		}
		return result{Ended: r.Ended, Error: said(r.Error)}.end()
	}
	return end, nil
}

// said is why the agent failed, of the member "error" of a service's answer: a text as it is, another value as JSON on one line. "": it did not fail.
func said(failure json.RawMessage) string {
	var line bytes.Buffer
	_ = json.Compact(&line, failure) // it was read before
	switch line.String() {
	case "", "null", "false", "0", "{}", "[]":
		return ""
	}
	var text string
	if json.Unmarshal(failure, &text) == nil {
		return text
	}
	return line.String()
}

// misspelt is a key of a JSON object that one letter, or two swapped ones, set apart from a key of a result which the object lacks: with it the reward or
// the answer would be missing. Other keys are the service's own. "": there is no such key.
func misspelt(object []byte) (key, meant string) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(object, &members) // it was read before
	keys := slices.Sorted(maps.Keys(members))
	for _, lacks := range []string{"answer", "reward"} {
		if slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, lacks) }) {
			continue
		}
		for _, k := range keys {
			if wording.Distance(strings.ToLower(k), lacks) == 1 {
				return k, lacks
			}
		}
	}
	return "", ""
}

// Close implements Runner.
func (c *Callback) Close() error { return nil }
