package vllm

import (
	"context"
	"fmt"
	"net/http"
)

// weightVersion is the name of the weights that the server has.
func (c *client) weightVersion(ctx context.Context) (string, error) {
	var info struct {
		Version *string `json:"weight_version"`
	}
	if err := c.call(ctx, http.MethodGet, "/weight_info", nil, &info); err != nil {
		return "", fmt.Errorf("weight version: %w", err)
	}
	if info.Version == nil {
		return "", fmt.Errorf("weight version: %w: no weight_version", errReply)
	}
	return *info.Version, nil
}

func (c *client) nameWeights(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, "/update_weight_version", map[string]any{"new_version": name}, nil)
}

// pause keeps the requests in flight, which go on with resume.
func (c *client) pause(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/pause?mode=keep", nil, nil)
}

func (c *client) resume(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/resume", nil, nil)
}

func (c *client) isSleeping(ctx context.Context) (bool, error) {
	var answer struct {
		Sleeping *bool `json:"is_sleeping"`
	}
	if err := c.call(ctx, http.MethodGet, "/is_sleeping", nil, &answer); err != nil {
		return false, err
	}
	if answer.Sleeping == nil {
		return false, fmt.Errorf("%w: no is_sleeping", errReply)
	}
	return *answer.Sleeping, nil
}

func (c *client) wakeUp(ctx context.Context, tags string) (string, error) {
	var answer struct{ Status string }
	if err := c.call(ctx, http.MethodPost, "/wake_up"+tags, nil, &answer); err != nil {
		return "", err
	}
	if answer.Status != "awake" && answer.Status != "sleeping" {
		return "", fmt.Errorf("%w: status %q, expected awake or sleeping", errReply, answer.Status)
	}
	return answer.Status, nil
}

// wakeFromSleep wakes a server that a run left asleep. vLLM says of a paused one too that it sleeps.
func (c *client) wakeFromSleep(ctx context.Context) error {
	sleeping, err := c.isSleeping(ctx)
	if err != nil {
		return fmt.Errorf("is sleeping: %w", err)
	}
	if !sleeping {
		return nil
	}
	if _, err := c.wakeUp(ctx, ""); err != nil {
		return fmt.Errorf("wake up: %w", err)
	}
	return nil
}

// wake resumes a server that a run left paused, because a paused one answers no probe. What it computes is not used before
// its weights are known: see unproven.
func (c *client) wake(ctx context.Context) error {
	var state struct {
		Paused bool `json:"is_paused"`
	}
	if err := c.call(ctx, http.MethodGet, "/is_paused", nil, &state); err != nil {
		return fmt.Errorf("is paused: %w", err)
	}
	if !state.Paused {
		return nil
	}
	if err := c.resume(ctx); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	return nil
}
