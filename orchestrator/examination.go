package orchestrator

import (
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/session"
)

// mostShown is how much of a prompt is shown, in runes: the head and the tail of a longer one.
const mostShown = 2000

// Describe shows what a rollout of the job would begin with, or what the first conversation teaches: every line behind the mask of its tokens,
// which is 1 where they are trained.
func (x Examination) Describe(j *job.Job) string {
	switch {
	case x.Prompt != nil:
		return x.prompt(j)
	case x.Learn != nil:
		return x.learned()
	}
	return ""
}

func (x Examination) prompt(j *job.Job) string {
	var b strings.Builder
	p := x.Prompt
	fmt.Fprintf(&b, "\nthe prompt of task %q: %d of %d tokens (rollout.max_tokens)\n", p.Task, len(p.IDs), j.Rollout.MaxTokens)
	b.WriteString("mask\n")
	lines(&b, 0, p.Text)
	fmt.Fprintf(&b, "   1 | … the reply, up to %d tokens (rollout.max_new_tokens): trained\n", j.Rollout.MaxNewTokens)
	if p.Unknown != "" {
		fmt.Fprintf(&b, "note: the tokenizer has no tokens for %q in this prompt: the model does not see it; use a model whose tokenizer knows it, or rewrite the prompt\n", wording.Clip(p.Unknown, 80))
	}
	return b.String()
}

func (x Examination) learned() string {
	var b strings.Builder
	s := x.Learn
	fmt.Fprintf(&b, "\nthe first conversation: %d tokens, %d of them learned\nmask\n", s.Len(), s.ResponseTokens())
	for from := 0; from < s.Len(); {
		to := from
		for to < s.Len() && s.ResponseMask[to] == s.ResponseMask[from] {
			to++
		}
		mask := 0
		if s.ResponseMask[from] {
			mask = 1
		}
		lines(&b, mask, x.Text.Tokenizer.Decode(s.TokenIDs[from:to], false))
		from = to
	}
	if session.HasUnknown(x.Text, s.TokenIDs) {
		b.WriteString("note: the tokenizer has no tokens for parts of this conversation: the model does not see them; use a model whose tokenizer knows them, or rewrite it\n")
	}
	return b.String()
}

// lines writes a text behind the mask of its tokens, without the middle of a long one.
func lines(b *strings.Builder, mask int, text string) {
	if r := []rune(text); len(r) > mostShown {
		text = string(r[:mostShown/2]) + fmt.Sprintf("\n… %d characters …\n", len(r)-mostShown) + string(r[len(r)-mostShown/2:])
	}
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fmt.Fprintf(b, "   %d | %s\n", mask, line)
	}
}
