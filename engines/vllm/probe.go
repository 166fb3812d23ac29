package vllm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/engines"
)

// Server is what one server can do, as it was probed.
type Server struct {
	URL         string
	Release     string // vLLM's version
	Model       string // the served name
	MaxModelLen int
	Native      bool   // /inference/v1/generate
	Processed   bool   // logprobs are those of the distribution that was sampled
	MaxLogprobs int    // likeliest tokens that a request may ask for (--max-logprobs); 0: it does not say
	Control     bool   // pause, resume and the weight version: the server can be updated
	Reload      bool   // checkpoints from disk
	LoRA        bool   // adapters at run time
	Steps       bool   // the routes of weight transfer
	Transfer    bool   // weight transfer to our extension: shared memory, gloo and ipc
	Sleep       bool   // it can sleep and wake up
	Extension   bool   // agentfly_transfer.py runs in its workers
	DType       string // that its model computes in, as PyTorch calls it; "" where no extension tells
	Version     string // of the weights that it has

	sampled bool // it was asked for tokens: Native, Processed and MaxLogprobs are known
}

// String is the summary that is printed once.
func (s Server) String() string {
	route, logprobs, versions := "/v1/completions", "raw logprobs (temperature 1 without truncation only)", "per request"
	if s.Native {
		route, versions = "/inference/v1/generate", "per token"
	}
	if s.Processed {
		logprobs = "logprobs of what is sampled"
	}
	if s.MaxLogprobs > 0 {
		logprobs += fmt.Sprintf(" and of the %d likeliest tokens", s.MaxLogprobs)
	}
	samples := fmt.Sprintf("%s, %s, versions %s", route, logprobs, versions)
	if !s.sampled {
		samples = "what it samples is asked after the next update"
	}
	ways := s.ways()
	sleep, computes := "cannot sleep", ""
	if s.DType != "" {
		computes = short(s.DType) + ", "
	}
	if s.Sleep {
		sleep = "can sleep"
	}
	return fmt.Sprintf("%s: vLLM %s, model %s, context %d, %s%s, weight updates: %s, %s, has weights %q",
		s.URL, short(s.Release), short(s.Model), s.MaxModelLen, computes, samples, ways, sleep, s.Version)
}

// ways are those of weight updates. No server tells the backend of weight transfer that it was started with, so those of both stand with theirs.
func (s Server) ways() string {
	var out []string
	for _, w := range []struct {
		name string
		has  bool
	}{
		{string(WayDisk), s.Reload},
		{string(WayLoRA), s.LoRA},
		{fmt.Sprintf("%s %s %s (backend %s)", WayTransfer, WayGloo, WayIPC, WayTransfer.ServerBackend()), s.Transfer},
		{fmt.Sprintf("%s (backend %s)", WayNCCL, WayNCCL.ServerBackend()), s.Steps},
	} {
		if s.Control && w.has {
			out = append(out, w.name)
		}
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, " ")
}

// probe finds out what the server can do. name is the model that is wanted, "" for the first. Weights that are called unproven may be those of
// a load that did not end, whose first token would end vLLM: what that server samples is asked after the next load, see updater.load.
func probe(ctx context.Context, c *completer, name string) (Server, error) {
	s := Server{URL: c.client.url}
	var models struct {
		Data []struct {
			ID     string  `json:"id"`
			Length int     `json:"max_model_len"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := c.client.call(ctx, http.MethodGet, "/v1/models", nil, &models); err != nil {
		return s, noModels(err)
	}
	for _, m := range models.Data {
		if m.ID == name || name == "" && m.Parent == nil && s.Model == "" {
			s.Model, s.MaxModelLen = m.ID, m.Length
		}
	}
	if s.Model == "" {
		return s, fmt.Errorf("the server has no model %q; it lists %d others", name, len(models.Data))
	}
	if s.MaxModelLen < 2 {
		return s, errors.New("/v1/models gives no max_model_len; this is not a vLLM server")
	}
	var release struct{ Version string }
	if err := c.client.call(ctx, http.MethodGet, "/version", nil, &release); err != nil {
		return s, fmt.Errorf("version: %w", err)
	}
	s.Release = release.Version
	if err := probeRoutes(ctx, c, &s); err != nil {
		return s, err
	}
	if isUnproven(s.Version) {
		return s, nil
	}
	err := probeSamples(ctx, c, &s)
	return s, err
}

// probeSamples finds out how the server samples.
func probeSamples(ctx context.Context, c *completer, s *Server) (err error) {
	one := func() (reply, error) {
		return c.send(ctx, s.Native, s.Model, []int32{0, 0}, samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0))
	}
	if s.Native { // the route may be there and closed
		_, err := one()
		var status *statusError
		if errors.As(err, &status) && slices.Contains([]int{401, 403, 404, 405, 501}, status.Status) {
			s.Native = false
		} else if err != nil {
			return fmt.Errorf("probe request: %w", err)
		}
	}
	if s.Version == "" { // vLLM has /weight_info in its development mode alone; its replies tell it, if anything does
		got, err := one()
		if err != nil {
			return fmt.Errorf("probe request: %w", err)
		}
		if len(got.spans) > 0 {
			s.Version = got.spans[0].Version
		}
	}
	if s.Processed, err = probeLogprobs(ctx, c, s.Native, s.Model); err != nil {
		return fmt.Errorf("probe request: %w", err)
	}
	if s.MaxLogprobs, err = probeMaxLogprobs(ctx, c, s.Native, s.Model); err != nil {
		return fmt.Errorf("probe request: %w", err)
	}
	s.sampled = true
	return nil
}

// noModels says what to do about a server that does not list its models.
func noModels(err error) error {
	var dial *net.OpError
	var status *statusError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("nobody answers (%w); start the server", dial)
	case errors.Is(err, errReply), errors.As(err, &status) && slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, status.Status):
		return fmt.Errorf("/v1/models: %w; this is not a vLLM server", err)
	}
	return fmt.Errorf("models: %w", err)
}

func probeRoutes(ctx context.Context, c *completer, s *Server) error {
	var docs struct {
		Paths map[string]raw `json:"paths"`
	}
	if err := c.client.call(ctx, http.MethodGet, "/openapi.json", nil, &docs); err != nil {
		return fmt.Errorf("list of routes: %w; start vLLM without --disable-fastapi-docs", err)
	}
	has := func(path string) bool { _, ok := docs.Paths[path]; return ok }
	s.Control = has("/pause") && has("/resume") && has("/update_weight_version") && has("/weight_info") && has("/reset_prefix_cache")
	s.Reload = has("/collective_rpc")
	s.LoRA = has("/v1/load_lora_adapter")
	s.Steps = has("/update_weights") && has("/start_weight_update") && has("/finish_weight_update")
	s.Sleep = has("/sleep") && has("/wake_up") && has("/is_sleeping") && s.Control
	s.Native = has("/inference/v1/generate")
	if s.Sleep {
		if err := c.client.wakeFromSleep(ctx); err != nil {
			return err
		}
	}
	if has("/is_paused") {
		if err := c.client.wake(ctx); err != nil {
			return err
		}
	}
	if s.Reload {
		body := map[string]any{"method": "agentfly_present"}
		var answer struct {
			Results []struct {
				DType string `json:"dtype"`
			} `json:"results"`
		}
		err := c.client.call(ctx, http.MethodPost, "/collective_rpc", body, &answer)
		if err != nil && !lacksMethod(err) {
			return fmt.Errorf("/collective_rpc: %w", err)
		}
		s.Extension = err == nil
		if len(answer.Results) > 0 {
			s.DType = answer.Results[0].DType
		}
	}
	s.Transfer = s.Steps && s.Extension
	if !has("/weight_info") {
		return nil
	}
	var err error
	s.Version, err = c.client.weightVersion(ctx)
	return err
}

// lacksMethod tells whether an error of /collective_rpc says that the workers do not have the method, which is 500 in vLLM and an error of that call
// alone. A server that did not answer, or was busy, says nothing of it.
func lacksMethod(err error) bool {
	var status *statusError
	return errors.Is(err, errReply) || errors.As(err, &status) && (status.Status == http.StatusInternalServerError || !passing(err))
}

// probeLogprobs samples at temperature 0.5. Prompt logprobs are always the model's own, so a server that gives the same for
// every sampled token does not give those of what it sampled. (top_k 1 would not tell: vLLM makes that greedy.) Where all
// tokens are alike, as after padding, or one is certain, the temperature changes nothing: hence several prompts.
func probeLogprobs(ctx context.Context, c *completer, native bool, model string) (bool, error) {
	for _, prompt := range [][]int32{{1, 2, 3}, {5, 4, 3, 2, 1}, {7, 6, 7}, {3, 1}} {
		sampled, err := c.send(ctx, native, model, prompt, samplingParams(engines.Sampling{MaxTokens: 1, Temperature: 0.5, TopP: 1}, 0))
		if err != nil {
			return false, err
		}
		if len(sampled.ids) != 1 {
			return false, fmt.Errorf("%w: %d tokens, expected 1", errReply, len(sampled.ids))
		}
		own, err := c.logprobs(ctx, native, model, append(prompt, sampled.ids[0]))
		if err != nil {
			return false, err
		}
		const same = 1e-2
		if math.Abs(float64(sampled.logprobs[0]-own[len(own)-1])) > same {
			return true, nil
		}
	}
	return false, nil // nothing shows that they are
}

// number reads the version in the name of weights. Another run's counts nothing here, so its weights are first, as those
// whose name has no number.
func (o Options) number(name string, first int32) int32 {
	run, version := cutVersion(name)
	if run != "" && run != o.Run {
		return first
	}
	if n, err := strconv.ParseInt(version, 10, 32); err == nil && n >= 0 {
		return int32(n)
	}
	return first
}
