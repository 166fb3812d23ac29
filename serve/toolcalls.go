package serve

import (
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
)

// parser makes the format of a request's tools.
func (s *Server) parser(specs []tools.Spec) (agents.Format, error) {
	of, _ := s.o.Agents.Parser(s.o.ToolParser)
	return s.o.Agents.NewFormat(of.Name, specs, agents.FormatOptions{})
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
