package rollouttest

import (
	"context"

	"github.com/agentfly/agentfly/engines"
)

// OnRequest is an engine that calls f with each request before it is answered.
func OnRequest(e engines.Engine, f func(engines.Request)) engines.Engine {
	return &observed{Engine: e, asked: f}
}

// OnCompletion is an engine that calls f with each completion and its request.
func OnCompletion(e engines.Engine, f func(engines.Request, engines.Completion)) engines.Engine {
	return &observed{Engine: e, answered: f}
}

type observed struct {
	engines.Engine
	asked    func(engines.Request)                     // nil: nothing
	answered func(engines.Request, engines.Completion) // nil: nothing
}

func (o *observed) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	if o.asked != nil {
		o.asked(r)
	}
	c, err := o.Engine.Generate(ctx, r)
	if err == nil && o.answered != nil {
		o.answered(r, c)
	}
	return c, err
}
