package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/tools"
)

// unappliedHeader names, in a reply, the parameters of its request that were not applied.
const unappliedHeader = "X-Agentfly-Unapplied"

// formsAsked are the parameters of a request that ask for a form of the reply.
func formsAsked(q *dialects.Request) []string {
	var out []string
	if q.Format != nil {
		out = append(out, "response_format")
	}
	if q.Choice.MustCall() {
		out = append(out, "tool_choice")
	}
	if s, err := structuredOf(q); err != nil || s.Asked() {
		out = append(out, "structured_outputs")
	}
	return out
}

// structuredOf reads vLLM's structured_outputs, which no dialect has.
func structuredOf(q *dialects.Request) (forms.Structured, error) {
	var vllm struct {
		Form forms.Structured `json:"structured_outputs"`
	}
	if err := json.Unmarshal(q.Asked, &vllm); err != nil {
		return vllm.Form, &dialects.Error{Status: http.StatusBadRequest, Param: "structured_outputs", Message: fmt.Sprintf("structured_outputs: %v", err)}
	}
	return vllm.Form, nil
}

// variables are vLLM's parameter that sets variables of the chat template. It is never applied: the job decides how a prompt is rendered.
const variables = "chat_template_kwargs"

// variablesAsked tells whether a request sets variables of the chat template.
func variablesAsked(q *dialects.Request) bool {
	var vllm struct {
		Variables map[string]json.RawMessage `json:"chat_template_kwargs"`
	}
	err := json.Unmarshal(q.Asked, &vllm)
	return err != nil || len(vllm.Variables) > 0
}

// unapplied are the parameters of a request that are not applied. held says that its forms are.
func (q asked) unapplied(held bool) []string {
	var out []string
	if !held {
		out = slices.Clone(q.forms)
	}
	if q.variables {
		out = append(out, variables)
	}
	return out
}

// formOf is what the reply to a request is held to; nil: it is free.
func formOf(gate Options, q asked, p prompt) (engines.Constraint, error) {
	if gate.Forms == nil || q.forms == nil {
		return nil, nil
	}
	w := forms.Wanted{Schema: q.Format, Choice: q.Choice, OneCall: !q.Parallel}
	var err error
	if w.Structured, err = structuredOf(q.Request); err != nil {
		return nil, err
	}
	var form *forms.Form
	if q.Messages == nil {
		form, err = w.Text()
	} else {
		format := p.format
		if q.Choice.Mode == dialects.ChoiceNamed { // the others may not be called
			specs, err := specsOf(q.Tools)
			if err != nil {
				return nil, err
			}
			if format, err = gate.Format(slices.DeleteFunc(specs, func(s tools.Spec) bool { return s.Name != q.Choice.Name })); err != nil {
				return nil, err
			}
		}
		form, err = gate.Forms.Reply(w, format, agents.OpensThought(p.text))
	}
	if form == nil || err != nil {
		return nil, err
	}
	return gate.Forms.Compile(form)
}
