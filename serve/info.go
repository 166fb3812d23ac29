package serve

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/dialects"
)

// health is 200 from the first request on: the engine is there before the server.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if _, closed, _ := s.gate.state(); closed {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	s.reply(w, http.StatusOK, map[string]string{"version": s.o.Version})
}

// openAPI lists the routes: clients of vLLM look here for what a server offers.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]map[string]struct{}{}
	for _, r := range s.table() {
		path := strings.ReplaceAll(r.path, "...", "")
		if paths[path] == nil {
			paths[path] = map[string]struct{}{}
		}
		paths[path][strings.ToLower(r.method)] = struct{}{}
	}
	s.reply(w, http.StatusOK, map[string]any{
		"openapi": "3.1.0", "info": map[string]string{"title": "AgentFly", "version": s.o.Version}, "paths": paths,
	})
}

type modelInfo struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	Owner   string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
	MaxLen  int     `json:"max_model_len"`
}

func (s *Server) info(name string) modelInfo {
	return modelInfo{ID: name, Object: "model", Created: s.created, Owner: "agentfly", Root: s.o.Root, MaxLen: s.maxLen}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	data := []modelInfo{}
	for _, name := range s.o.Models {
		data = append(data, s.info(name))
	}
	s.reply(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if !slices.Contains(s.o.Models, name) {
		s.fail(w, s.checkModel(&name))
		return
	}
	s.reply(w, http.StatusOK, s.info(name))
}

// tokenizeRequest is the body of /tokenize: a text or a conversation.
type tokenizeRequest struct {
	Model      *string `json:"model"`
	Prompt     *string `json:"prompt"`
	Messages   rawList `json:"messages"`
	Tools      rawList `json:"tools"`
	AddSpecial *bool   `json:"add_special_tokens"`
	AddPrompt  *bool   `json:"add_generation_prompt"`
	Strings    bool    `json:"return_token_strs"`
	Template   present `json:"chat_template"`
	Args       present `json:"chat_template_kwargs"`
	Continue   bool    `json:"continue_final_message"`
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request, _ *places, in *tokenizeRequest) error {
	err := s.checkModel(in.Model)
	var ids []int32
	switch {
	case err != nil:
	case bool(in.Template || in.Args) || in.Continue:
		err = badf("chat_template", "chat_template, chat_template_kwargs and continue_final_message are not supported by this server")
	case in.Prompt != nil && in.Messages == nil:
		if err = s.checkText("prompt", "the prompt", len(*in.Prompt)); err == nil {
			ids, err = s.encode(r.Context(), *in.Prompt, or(in.AddSpecial, true))
		}
	case in.Prompt == nil && in.Messages != nil:
		ids, err = in.conversation(r.Context(), s)
	default:
		err = badf("prompt", "give either prompt or messages")
	}
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	out := map[string]any{"count": len(ids), "max_model_len": s.maxLen, "tokens": ids, "token_strs": nil}
	if in.Strings {
		names := []string{}
		for _, id := range ids {
			name, _ := s.o.Tokenizer.Token(id)
			names = append(names, name)
		}
		out["token_strs"] = names
	}
	s.reply(w, http.StatusOK, out)
	return nil
}

// conversation gives the ids of messages and tools.
func (in *tokenizeRequest) conversation(ctx context.Context, s *Server) ([]int32, error) {
	if err := s.checkParts(len(in.Messages) + len(in.Tools)); err != nil {
		return nil, err
	}
	messages, err := dialects.ParseMessages(in.Messages)
	if err != nil {
		return nil, err
	}
	talk := conversation{messages: messages, tools: in.Tools, noPrompt: !or(in.AddPrompt, true), special: or(in.AddSpecial, false)}
	ids, _, err := talk.render(ctx, s)
	return ids, err
}

type detokenizeRequest struct {
	Model  *string  `json:"model"`
	Tokens *[]int32 `json:"tokens"`
}

// leastTokens is how many tokens /detokenize always takes, however short the context is.
const leastTokens = 1 << 17

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request, _ *places, in *detokenizeRequest) error {
	if err := s.checkModel(in.Model); err != nil {
		return err
	}
	if in.Tokens == nil {
		return badf("tokens", "tokens is missing")
	}
	if most := max(leastTokens, s.maxLen); len(*in.Tokens) > most {
		return badf("tokens", "%d tokens are too many, at most %d are allowed", len(*in.Tokens), most)
	}
	for i, id := range *in.Tokens {
		if id < 0 || int(id) >= s.o.Vocab {
			return badf("tokens", "token %d is %d, allowed are 0 to %d", i, id, s.o.Vocab-1)
		}
	}
	var text string
	if err := s.withText(r.Context(), func() { text = s.o.Tokenizer.Decode(*in.Tokens, false) }); err != nil {
		return err
	}
	s.reply(w, http.StatusOK, map[string]string{"prompt": text})
	return nil
}
