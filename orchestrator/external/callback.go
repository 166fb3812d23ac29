package external

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// Callback asks a service to run the agent: it posts the assignment and waits for the answer, which may be empty or {"answer": …, "reward": …}.
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
		if err := json.Unmarshal(text, &end); err != nil {
			return end, fmt.Errorf("the agent's service %s answered no JSON: %w", c.URL, err)
		}
	}
	return end, nil
}

// Close implements Runner.
func (c *Callback) Close() error { return nil }
