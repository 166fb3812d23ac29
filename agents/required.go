package agents

import (
	"fmt"

	form "github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
)

// Required is what a Format has that can say which completions are calls: a server holds a completion to it where a call is required.
type Required interface {
	// Calls are completions of one call, or with several of at least one, of the format's tools and with arguments that their schemas allow.
	// Parse reads each of them. It fails for a schema that cannot be honoured.
	Calls(several bool) (form.Expr, error)
}

// argumentsOf are the JSON objects that a tool takes.
func argumentsOf(spec tools.Spec) (form.Expr, error) {
	if len(spec.Parameters) == 0 {
		return form.Text("{}"), nil
	}
	e, err := form.JSONSchema(spec.Parameters)
	if err != nil {
		return form.Expr{}, fmt.Errorf("the parameters of %s: %w", spec.Name, err)
	}
	return e, nil
}

// namedCalls are the JSON objects {"name": …, key: {…}}.
func namedCalls(specs []tools.Spec, key string) (form.Expr, error) {
	var calls []form.Expr
	for _, spec := range specs {
		arguments, err := argumentsOf(spec)
		if err != nil {
			return form.Expr{}, err
		}
		name, err := wording.JSON(spec.Name)
		if err != nil {
			return form.Expr{}, err
		}
		calls = append(calls, form.Sequence(form.Text(`{"name": `+string(name)+`, "`+key+`": `), arguments, form.Text("}")))
	}
	return form.Choice(calls...), nil
}

// maxCalls bounds the calls of a turn that is held to them: a small model would go on calling.
const maxCalls = 8

// listed is one call, or with several up to maxCalls with a text between them.
func listed(call form.Expr, between string, several bool) form.Expr {
	if !several {
		return call
	}
	return form.Sequence(call, form.Repeat(form.Sequence(form.Text(between), call), 0, maxCalls-1))
}
