package serve

import (
	"net/http"

	"github.com/agentfly/agentfly/dialects"
)

// generateAPI answers /inference/v1/generate.
type generateAPI struct {
	models  *models
	stamp   *stamp
	codec   *codec
	forms   *forms
	engine  *completer
	weights *weights
}

// generateRequest is the body of /inference/v1/generate: tokens in, tokens out.
type generateRequest struct {
	ID       string          `json:"request_id"`
	Model    *string         `json:"model"`
	TokenIDs []int32         `json:"token_ids"`
	Sampling *generateParams `json:"sampling_params"`
	Stream   bool            `json:"stream"`
	Options  *streamOptions  `json:"stream_options"`
	Output   string          `json:"output_mode"`
	Features present         `json:"features"`
	Parts    present         `json:"content_parts"`
}

type generateParams struct {
	sampling
	MaxTokens *dialects.Whole `json:"max_tokens"`
	Logprobs  *dialects.Whole `json:"logprobs"`
}

type generateReply struct {
	ID       string           `json:"request_id"`
	Choices  []generateChoice `json:"choices"`
	PromptLP []promptLogprob  `json:"prompt_logprobs"`
	Usage    *usage           `json:"usage,omitempty"`
}

type generateChoice struct {
	Index    int            `json:"index"`
	TokenIDs []int32        `json:"token_ids"`
	Logprobs *tokenLogprobs `json:"logprobs"`
	Finish   *string        `json:"finish_reason"`
	Reason   any            `json:"stop_reason"`
	Versions []span         `json:"weight_versions"`
}

// answer completes one prompt.
func (a *generateAPI) answer(w http.ResponseWriter, r *http.Request, p *places, in *generateRequest) error {
	if err := a.models.check(in.Model); err != nil {
		return err
	}
	switch {
	case in.Sampling == nil:
		return badf("sampling_params", "sampling_params is missing")
	case in.Output != "" && in.Output != "tokens":
		return badf("output_mode", "output_mode %q is not supported by this server; tokens is", in.Output)
	case bool(in.Features || in.Parts):
		return badf("features", "this server takes token ids alone: no features, no content_parts")
	}
	params := in.Sampling
	if err := checkName("request_id", in.ID); err != nil {
		return err
	}
	want, err := maxTokens((*int)(params.MaxTokens), 16)
	if err != nil {
		return err
	}
	detail, err := a.engine.detail(params.Logprobs, "logprobs")
	if err != nil {
		return err
	}
	if want, err = a.codec.checkPrompt("token_ids", in.TokenIDs, want); err != nil {
		return err
	}
	sampling, err := params.engine(want, a.codec.stopIDs)
	if err != nil {
		return err
	}
	base := generateReply{ID: in.ID}
	if base.ID == "" {
		base.ID = a.stamp.id("generate")
	}
	form, err := a.forms.ofText(r.Context(), &params.sampling)
	if err != nil {
		return err
	}
	choices := a.engine.choices(base.ID, &params.sampling, sampling, [][]int32{in.TokenIDs}, []int{want}, form)
	if err := p.need(len(choices)); err != nil {
		return err
	}
	if base.PromptLP, err = a.engine.givenLogprobs(r.Context(), choices, params.Prompts != nil); err != nil {
		return err
	}
	tell := func(c *choice) generateChoice {
		tokens, _ := c.news()
		out := generateChoice{Index: c.index, TokenIDs: ids(tokens)}
		if params.Logprobs != nil {
			out.Logprobs = idLogprobs(tokens)
		}
		if c.finish != "" {
			out.Finish, out.Reason, out.Versions = &c.finish, c.reason, a.weights.spans(c.tokens)
		}
		return out
	}
	if !in.Stream {
		if err := a.engine.run(r.Context(), p, choices, detail, func(*choice) error { return nil }); err != nil {
			return err
		}
		for _, c := range choices {
			base.Choices = append(base.Choices, tell(c))
		}
		base.Usage = count(choices, len(choices))
		reply(w, http.StatusOK, base)
		return nil
	}
	e := newEvents(w)
	err = a.engine.run(r.Context(), p, choices, detail, func(c *choice) error {
		chunk := base
		chunk.Choices = []generateChoice{tell(c)}
		base.PromptLP = nil // the first chunk told them
		return e.send(chunk)
	})
	if err == nil && in.Options.usage() {
		base.Choices, base.Usage = []generateChoice{}, count(choices, len(choices))
		err = e.send(base)
	}
	e.close(err)
	return nil
}
