package environments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	minText   = 256      // bytes that Options.MaxText is at least
	maxImage  = 32 << 20 // bytes of an image's URL
	maxParts  = 1000     // of an observation
	maxInfo   = 1 << 20  // bytes of Result.Info as JSON
	maxAnchor = 128      // bytes of the name of a state, beyond which it is the hash of that
)

// check reads an action as the environment shall see it. wrong is what the agent reads of one that is not possible; it says what is right.
func (m *rules) check(a Action) (_ Action, wrong string) {
	name := a.Name
	if len(m.spec.Tools) == 0 {
		if name == "" {
			return Action{Text: a.Text}, ""
		}
	} else if name == "" {
		return a, "An action must be a call of a tool. The tools are: " + m.usage() + "."
	}
	schema := m.tools[name]
	if schema == nil {
		return a, fmt.Sprintf("There is no tool %q%s. The tools are: %s.", wording.Clip(strings.ToValidUTF8(name, "\uFFFD"), 64), wording.DidYouMean(name, slices.Sorted(maps.Keys(m.tools))), m.usage())
	}
	if len(a.Arguments) == 0 {
		a.Arguments = json.RawMessage("{}")
	}
	if err := schema.Check(a.Arguments); err != nil {
		wrong = name + ": " + err.Error()
		if usage := schema.Usage(); !strings.Contains(wrong, usage) {
			wrong += "; the arguments are " + usage
		}
		return a, strings.ToValidUTF8(wrong, "\uFFFD")
	}
	a.Text = ""
	if len(m.spec.Tools) > 0 {
		return a, ""
	}
	var act struct {
		Action string `json:"action"`
	}
	if err := json.Unmarshal(a.Arguments, &act); err != nil {
		return a, fmt.Sprintf("%s: %s; the arguments are %s", name, wording.JSONReason(err), schema.Usage())
	}
	return Action{Text: act.Action}, ""
}

// usage lists the tools as a person would write their calls.
func (m *rules) usage() string {
	var all []string
	for _, t := range m.spec.Actions() {
		all = append(all, t.Name+" "+m.tools[t.Name].Usage())
	}
	return strings.Join(all, ", ")
}

// acceptResult checks what a step gave. An error is the environment's fault.
func (m *rules) acceptResult(r Result) (_ Result, err error) {
	if math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0) {
		return r, fmt.Errorf("the reward is %v, and a reward must be finite; mend the environment", r.Reward)
	}
	if err := failed(r); err != nil {
		return r, err
	}
	if r.Observation, err = m.accept(r.Observation); err != nil {
		return r, err
	}
	r.Anchor = nameOf(r.Anchor, r.Observation)
	if len(r.Info) == 0 {
		return r, nil
	}
	b, err := panics.Value("its info", func() ([]byte, error) { return json.Marshal(r.Info) })
	if err == nil && len(b) > maxInfo {
		err = fmt.Errorf("it has %d bytes as JSON, and at most %d are kept", len(b), maxInfo)
	}
	r.Info = maps.Clone(r.Info)
	if err != nil {
		r.Info = nil
		m.count(func(c *counts) { c.dropped++ })
		m.noteOnce("info", "the info of a step cannot be recorded and is left out, there and wherever that happens again: "+oneLine(err.Error()))
	}
	return r, nil
}

// failed is the failure that a result tells, where that is not the policy's.
func failed(r Result) error {
	if r.Failure == "" || r.Failure == trajectory.FailurePolicy {
		return nil
	}
	return fmt.Errorf("its result says that the failure is the %s's: %q", wording.Clip(string(r.Failure), 40), short(r.Observation))
}

// accept checks an observation, mends its text and leaves out what is too long. The parts are the caller's own afterwards.
func (m *rules) accept(o Observation) (Observation, error) {
	if len(o) > maxParts {
		return nil, fmt.Errorf("the observation has %d parts, and at most %d are read; mend the environment", len(o), maxParts)
	}
	o = slices.Clone(o)
	total := 0
	for i, p := range o {
		switch {
		case p.Type == "text" && p.Image == "":
			o[i].Text = strings.ToValidUTF8(p.Text, "\uFFFD")
			total += len(o[i].Text)
		case p.Type == "image" && p.Text == "" && len(p.Image) > maxImage:
			return nil, fmt.Errorf("the observation's image has %d bytes, and at most %d are read; let the environment make a smaller one", len(p.Image), maxImage)
		case p.Type == "image" && p.Text == "" && p.Image != "":
		default:
			return nil, fmt.Errorf("part %d of the observation is neither a text nor an image (its type is %q); mend the environment", i, wording.Clip(p.Type, 40))
		}
	}
	if total <= m.o.MaxText {
		return o, nil
	}
	m.count(func(c *counts) { c.cut++ })
	return cutParts(o, m.o.MaxText), nil
}

// cutParts leaves n bytes of the texts of an observation: those of its first parts, the middle of the one that is too long left out. The texts behind
// that are left out whole, and a last part says how long they were.
func cutParts(o Observation, n int) Observation {
	more, out := 0, make(Observation, 0, len(o))
	for i, p := range o {
		if p.Type == "text" {
			if len(p.Text) > n && i+1 < len(o) {
				n -= len(marker(maxInfo)) // room for the last part
			}
			text := cutText(p.Text, n)
			if n = max(0, n-len(text)); text != p.Text {
				n = 0
			}
			if p.Text = text; text == "" {
				more += len(o[i].Text)
				continue
			}
		}
		out = append(out, p)
	}
	if more > 0 {
		out = append(out, trajectory.Part{Type: "text", Text: marker(more)})
	}
	return out
}

// marker stands in place of n bytes.
func marker(n int) string { return fmt.Sprintf("\n[%d bytes left out]\n", n) }

// cutText leaves out the middle of a text, so that at most n bytes are left, with a marker that says how many were left out: two thirds of what
// is left are its beginning. Where there is no room for the marker, nothing is left.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	keep := n - len(marker(len(s)))
	if keep < 0 {
		return ""
	}
	head := keep * 2 / 3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	tail := len(s) - (keep - keep*2/3)
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + marker(tail-head) + s[tail:]
}

// nameOf is the name of a state: that which the environment gave, else its observation, or the hash of either where it is long.
func nameOf(anchor string, o Observation) string {
	if anchor == "" {
		var b strings.Builder
		for _, p := range o {
			b.WriteString(p.Text)
			b.WriteString(p.Image)
		}
		anchor = b.String()
	}
	if len(anchor) <= maxAnchor {
		return strings.ToValidUTF8(anchor, "\uFFFD")
	}
	sum := sha256.Sum256([]byte(anchor))
	return hex.EncodeToString(sum[:16])
}

// short is an observation for a message.
func short(o Observation) string {
	var b strings.Builder
	for _, p := range o {
		if p.Type == "image" {
			b.WriteString("[image]")
		}
		b.WriteString(p.Text)
		if b.Len() > 1000 {
			break
		}
	}
	return wording.Clip(b.String(), 120)
}
