package serve

import (
	"maps"
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
)

// toolParsers are vLLM's names of the forms in which models write calls, and ours.
var toolParsers = map[string]string{
	"hermes": "hermes", "qwen3_json": "hermes", "llama3_json": "llama3_json", "llama4_json": "llama3_json", "mistral": "mistral",
	"qwen3_coder": "qwen3_coder", "qwen3_xml": "qwen3_coder",
}

// ToolParsers are the names that Options.ToolParser takes, sorted.
func ToolParsers() []string { return slices.Sorted(maps.Keys(toolParsers)) }

// parser makes the format of a request's tools.
func (s *Server) parser(specs []tools.Spec) (agents.Format, error) {
	return agents.NewFormat(toolParsers[s.o.ToolParser], specs, agents.FormatOptions{})
}

// keeping is a tokenizer whose special tokens that begin a call, or are the tags of a thought, are text.
type keeping struct {
	Tokenizer
	kept []int32
}

func (k keeping) IsSpecial(id int32) bool {
	return k.Tokenizer.IsSpecial(id) && !slices.Contains(k.kept, id)
}

func (k keeping) Decode(ids []int32, skipSpecial bool) string {
	if !skipSpecial {
		return k.Tokenizer.Decode(ids, false)
	}
	return masks.DecodeKeeping(k.Tokenizer, ids, k.kept)
}
