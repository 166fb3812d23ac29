package serve

import (
	"context"
	"net/http"

	"github.com/agentfly/agentfly/dialects"
)

// tokenizeAPI answers /tokenize and /detokenize.
type tokenizeAPI struct {
	models *models
	codec  *codec
}

// tokenizeRequest is the body of /tokenize: a text or a conversation.
type tokenizeRequest struct {
	Model      *string       `json:"model"`
	Prompt     *string       `json:"prompt"`
	Messages   dialects.List `json:"messages"`
	Tools      dialects.List `json:"tools"`
	AddSpecial *bool         `json:"add_special_tokens"`
	AddPrompt  *bool         `json:"add_generation_prompt"`
	Strings    bool          `json:"return_token_strs"`
	Template   present       `json:"chat_template"`
	Args       present       `json:"chat_template_kwargs"`
	Continue   bool          `json:"continue_final_message"`
}

func (a *tokenizeAPI) tokenize(w http.ResponseWriter, r *http.Request, _ *places, in *tokenizeRequest) error {
	err := a.models.check(in.Model)
	var ids []int32
	switch {
	case err != nil:
	case bool(in.Template || in.Args) || in.Continue:
		err = badf("chat_template", "chat_template, chat_template_kwargs and continue_final_message are not supported by this server")
	case in.Prompt != nil && in.Messages == nil:
		if err = a.codec.checkText("prompt", "the prompt", len(*in.Prompt)); err == nil {
			ids, err = a.codec.encode(r.Context(), *in.Prompt, or(in.AddSpecial, true))
		}
	case in.Prompt == nil && in.Messages != nil:
		ids, err = in.conversation(r.Context(), a.codec)
	default:
		err = badf("prompt", "give either prompt or messages")
	}
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	out := map[string]any{"count": len(ids), "max_model_len": a.codec.maxLen, "tokens": ids, "token_strs": nil}
	if in.Strings {
		names := []string{}
		for _, id := range ids {
			name, _ := a.codec.tokenizer.Token(id)
			names = append(names, name)
		}
		out["token_strs"] = names
	}
	reply(w, http.StatusOK, out)
	return nil
}

// conversation gives the ids of messages and tools.
func (in *tokenizeRequest) conversation(ctx context.Context, c *codec) ([]int32, error) {
	if err := c.checkParts("messages", len(in.Messages)+len(in.Tools)); err != nil {
		return nil, err
	}
	messages, err := dialects.ParseMessages(in.Messages)
	if err != nil {
		return nil, err
	}
	talk := conversation{messages: messages, param: "messages", tools: in.Tools, noPrompt: !or(in.AddPrompt, true), special: or(in.AddSpecial, false)}
	ids, _, err := talk.render(ctx, c)
	return ids, err
}

type detokenizeRequest struct {
	Model  *string  `json:"model"`
	Tokens *[]int32 `json:"tokens"`
}

// leastTokens is how many tokens /detokenize always takes, however short the context is.
const leastTokens = 1 << 17

func (a *tokenizeAPI) detokenize(w http.ResponseWriter, r *http.Request, _ *places, in *detokenizeRequest) error {
	if err := a.models.check(in.Model); err != nil {
		return err
	}
	if in.Tokens == nil {
		return badf("tokens", "tokens is missing")
	}
	if most := max(leastTokens, a.codec.maxLen); len(*in.Tokens) > most {
		return badf("tokens", "%d tokens are too many, at most %d are allowed", len(*in.Tokens), most)
	}
	for i, id := range *in.Tokens {
		if id < 0 || int(id) >= a.codec.vocab {
			return badf("tokens", "token %d is %d, allowed are 0 to %d", i, id, a.codec.vocab-1)
		}
	}
	var text string
	if err := a.codec.do(r.Context(), func() { text = a.codec.tokenizer.Decode(*in.Tokens, false) }); err != nil {
		return err
	}
	reply(w, http.StatusOK, map[string]string{"prompt": text})
	return nil
}
