package session

import (
	"errors"
	"fmt"
	"os"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// text is what makes ids of conversations: the renderer of the policy's text, and the job's agent, which says what precedes and follows.
type text struct {
	job      *job.Job
	path     string // of the policy; "": the job's model
	agent    *agents.Agent
	renderer *masks.Renderer
	marks    []string // of the agent: texts that stay special tokens
}

// newText makes the renderer of a policy's text for the job's agent. A text that cannot be rendered is a fault of the job's model or
// template, or of the policy at path where that is another one.
func newText(j *job.Job, p *policy.Policy, path string, agent *agents.Agent, know func(line string)) (*text, error) {
	t, err := renderText(j, p, path, agent, know)
	if input := (*job.Error)(nil); err == nil || errors.As(err, &input) {
		return t, err
	}
	return nil, templateError(j, path, err)
}

// templateError is the error of a template that cannot be used.
func templateError(j *job.Job, path string, err error) error {
	switch {
	case j.Model.ChatTemplate != "":
		return j.Fail("model.chat_template", "%v", err)
	case path != "":
		return job.InputError(fmt.Errorf("%s: %w", path, err))
	}
	return j.Fail("model.path", "%v", err)
}

func renderText(j *job.Job, p *policy.Policy, path string, agent *agents.Agent, know func(line string)) (*text, error) {
	if err := overrideTemplate(j, p); err != nil {
		return nil, err
	}
	compiled, err := p.Template()
	if err != nil {
		return nil, err
	}
	now, err := p.Now(j.Model.TemplateDate)
	if err != nil {
		return nil, err
	}
	marks, err := agent.Marks()
	if err != nil {
		return nil, agentError(j, err)
	}
	renderer, err := masks.NewRenderer(p.Tokenizer, compiled, masks.Options{
		StopIDs: p.StopIDs, Now: now, Markup: j.Agent.SpecialTokens == "markup", Marks: marks, AssistantMarkup: j.SFT != nil,
	})
	if err != nil {
		return nil, err
	}
	if ok, reason := renderer.AppendOnly(); !ok {
		know("the chat template rewrites history (" + reason + "); where a turn needs it, a new sample begins")
	}
	return &text{j, path, agent, renderer, marks}, nil
}

// overrideTemplate gives the policy the job's chat template, where it has one.
func overrideTemplate(j *job.Job, p *policy.Policy) error {
	if j.Model.ChatTemplate == "" {
		return nil
	}
	text, err := os.ReadFile(j.Resolve(j.Model.ChatTemplate))
	if err != nil {
		return j.Unreadable("model.chat_template", j.Model.ChatTemplate, err)
	}
	p.ChatTemplate, p.ToolUse = string(text), ""
	return nil
}

// prompt is what precedes the messages of every task, for an engine; nil: nothing is sampled.
func (t *text) prompt(e engines.Engine, know func(line string)) (p agents.Prompt, err error) {
	template := agents.Template{Renders: e == nil || e.Capabilities().TokenIDs, IgnoresTools: t.renderer.ToolsInSystemPrompt()}
	var examples []trajectory.Message
	if path := t.job.Agent.Examples; path != "" {
		if examples, err = data.ReadExamples(t.job.Resolve(path)); err != nil {
			return p, t.job.Fail("agent.examples", "%v", err)
		}
	}
	if p, err = t.agent.Prompt(template, examples); err != nil {
		return p, agentError(t.job, err)
	}
	if err := t.renderer.ToolsError(); err != nil && p.Schemas != nil && t.job.SFT == nil { // of SFT, conversations with a system message bring tools of their own
		return p, templateError(t.job, t.path, err)
	}
	if p.Schemas != nil && template.IgnoresTools {
		know("the chat template ignores tools; their schemas stand in the system prompt, in training, evaluation and serving alike")
	}
	return p, nil
}

// stops are the texts that end a completion.
func (t *text) stops() ([]string, error) {
	stops, err := t.agent.Stops()
	if err != nil {
		return nil, agentError(t.job, err)
	}
	return stops, nil
}

// decoder makes text of ids, with the agent's marks in it.
func (t *text) decoder(k *tokenizer.Tokenizer) func(ids []int32) string {
	kept := masks.Kept(k, t.marks)
	return func(ids []int32) string { return masks.DecodeKeeping(k, ids, kept) }
}

// agentError is an error of the job's agent: a panic of its format is a fault of the job.
func agentError(j *job.Job, err error) error {
	if caught := (*panics.Error)(nil); errors.As(err, &caught) {
		return j.Fail("agent.format", "%v", err)
	}
	return err
}
