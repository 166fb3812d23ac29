package serve

import (
	"crypto/sha256"
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
)

// callParser is the form in which the model writes calls.
type callParser struct {
	registry *agents.Registry
	name     string // one of the registry's parsers
}

// format makes the format of a request's tools.
func (p callParser) format(specs []tools.Spec) (agents.Format, error) {
	of, _ := p.registry.Parser(p.name)
	return p.registry.NewFormat(of.Name, specs, agents.FormatOptions{})
}

// callID is the id of a call: id, or where the models of the format know ids of one form alone, one of them that is made of it.
func callID(f agents.Format, id string) string {
	if ids, ok := f.(agents.CallIDs); ok {
		return ids.CallID(sha256.Sum256([]byte(id)))
	}
	return id
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
