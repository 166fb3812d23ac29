package serve

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/wording"
)

// control are the routes of a trainer: pause and resume, the names of weight versions, and new weights.
type control struct {
	queue   *queue
	gate    *gate
	weights *weights
	reload  func(ctx context.Context, path string) error // nil: /collective_rpc is not offered
}

func (c *control) routes() []route {
	table := []route{
		{"POST", "/pause", c.pause},
		{"POST", "/resume", c.resume},
		{"GET", "/is_paused", c.isPaused},
		{"POST", "/update_weight_version", c.updateWeightVersion},
		{"GET", "/weight_info", c.weightInfo},
		{"POST", "/reset_prefix_cache", c.resetPrefixCache},
	}
	if c.reload != nil {
		table = append(table, route{"POST", "/collective_rpc", c.collectiveRPC})
	}
	return table
}

func nothing(context.Context) error { return nil }

func (c *control) pause(w http.ResponseWriter, r *http.Request) {
	mode := r.URL.Query().Get("mode")
	if mode == "" {
		mode = "abort"
	}
	if err := c.pauseIn(r.Context(), mode); err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]string{"status": "paused"})
}

func (c *control) pauseIn(ctx context.Context, mode string) error {
	if mode != "abort" && mode != "wait" && mode != "keep" {
		return badf("mode", "mode is %q, allowed are abort, wait and keep", wording.Clip(mode, maxName))
	}
	idle, open, err := c.hold(ctx, mode)
	if err != nil || idle == nil {
		return err
	}
	select {
	case <-idle:
	case <-open:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-open: // perhaps beside idle
	default:
		return nil
	}
	if _, closed, _ := c.gate.state(); closed {
		return errShut
	}
	return &dialects.Error{Status: http.StatusConflict, Message: "the server was resumed while this pause waited for what runs; pause it again"}
}

// hold closes the gate and freezes the engine where the mode wants that; idle is what the other modes wait for, nil for
// nothing, and open closes when the pause ends.
func (c *control) hold(ctx context.Context, mode string) (idle, open <-chan struct{}, err error) {
	c.weights.mu.Lock()
	defer c.weights.mu.Unlock()
	paused, _, _ := c.gate.state()
	idle, open = c.gate.pause(mode == "abort")
	switch {
	case c.weights.frozen != nil:
		return nil, nil, nil // what runs stands still already, or was aborted just now
	case mode == "keep":
		if err := c.weights.freeze(ctx); err != nil {
			if !paused {
				c.gate.resume()
			}
			return nil, nil, err
		}
		return nil, nil, nil
	}
	return idle, open, nil
}

func (c *control) resume(w http.ResponseWriter, _ *http.Request) {
	c.weights.thaw()
	c.gate.resume()
	reply(w, http.StatusOK, map[string]string{"status": "resumed"})
}

func (c *control) isPaused(w http.ResponseWriter, _ *http.Request) {
	paused, _, _ := c.gate.state()
	reply(w, http.StatusOK, map[string]bool{"is_paused": paused})
}

func (c *control) updateWeightVersion(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Version *string `json:"new_version"`
	}
	release, err := c.queue.read(w, r, &in)
	defer release()
	if err == nil && in.Version == nil {
		err = badf("new_version", "new_version is missing")
	}
	if err == nil {
		err = checkName("new_version", *in.Version)
	}
	if err == nil {
		err = c.weights.change(r.Context(), in.Version, nothing)
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"success": true, "new_version": *in.Version})
}

func (c *control) weightInfo(w http.ResponseWriter, _ *http.Request) {
	_, name := c.weights.current()
	reply(w, http.StatusOK, map[string]string{"weight_version": name})
}

// resetPrefixCache forgets all keys and values. Running requests are computed again, and none is disturbed.
func (c *control) resetPrefixCache(w http.ResponseWriter, r *http.Request) {
	if err := c.weights.change(r.Context(), nil, nothing); err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]bool{"success": true})
}

// collectiveRPC offers the one method that a trainer needs.
func (c *control) collectiveRPC(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Method string `json:"method"`
		Kwargs struct {
			Path string `json:"weights_path"`
		} `json:"kwargs"`
		Args    json.RawMessage `json:"args"`
		Timeout *float64        `json:"timeout"`
	}
	release, err := c.queue.read(w, r, &in)
	defer release()
	switch {
	case err != nil:
	case in.Method != "reload_weights":
		err = badf("method", "method is %q; this server offers reload_weights alone", wording.Clip(in.Method, maxName))
	case in.Kwargs.Path == "":
		err = badf("kwargs", "kwargs.weights_path is missing")
	default:
		err = c.weights.change(r.Context(), nil, func(ctx context.Context) error { return c.reload(ctx, in.Kwargs.Path) })
	}
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string][]any{"results": {nil}})
}
