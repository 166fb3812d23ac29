package report

import (
	"reflect"
	"strings"
)

// Explained is what the types say of a metric of a step: docs/metrics.md has the same texts.
type Explained struct {
	Key     string `json:"key"`            // one that ends in capitals, behind its last slash, stands for several
	Unit    string `json:"unit,omitempty"` //
	Doc     string `json:"doc"`            // one sentence
	When    string `json:"when,omitempty"` // which steps have it; "": all of its section
	Section string `json:"section"`        // of docs/metrics.md
}

// Glossary explains every metric of a step, in the order of docs/metrics.md.
func Glossary() []Explained {
	var out []Explained
	section := ""
	var walk func(t reflect.Type, prefix, about string)
	walk = func(t reflect.Type, prefix, about string) {
		for i := range t.NumField() {
			f := t.Field(i)
			key, _ := metricOf(f, prefix)
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if title := f.Tag.Get("title"); title != "" {
				section = title
			}
			doc := f.Tag.Get("doc")
			if inner.Kind() == reflect.Struct {
				walk(inner, key, doc)
				continue
			}
			if about != "" { // a number of a distribution
				doc = about + ": " + doc
			}
			out = append(out, Explained{key, f.Tag.Get("unit"), doc, f.Tag.Get("when"), section})
		}
	}
	walk(reflect.TypeFor[Step](), "", "")
	return out
}

// Curve is one of the few that tell how a run does: the metrics that it shows, and when to worry.
type Curve struct {
	Title string   `json:"title"`
	Keys  []string `json:"keys"`           // as in Glossary; eval/reward, eval/accuracy, eval/pass/K, eval/loss and eval/reverse_kl are of evaluations
	Unit  string   `json:"unit,omitempty"` // of its axis, where all of Keys have the same
	Means string   `json:"means"`
	Worry string   `json:"worry"`
}

// Curves are those to look at first. What a curve means is what the types say of its first metric.
func Curves() []Curve {
	explained := map[string]string{
		"eval/reward":   "mean reward of held-out tasks, which are never trained on",
		"eval/accuracy": "share of held-out tasks with the right answer",
	}
	units := map[string]string{}
	for _, e := range Glossary() {
		explained[e.Key], units[e.Key] = e.Doc, e.Unit
	}
	out := []Curve{
		{"Held-out score", []string{"eval/reward", "eval/accuracy", "eval/pass/K"}, "", "", "it falls while the reward of training rises: the policy learns the training tasks, or a gap in the reward."},
		{"Reward", []string{"reward/mean", "reward/NAME"}, "", "", "it falls for many steps, or a part of it rises alone while the answers get worse."},
		{"Engine against trainer", []string{"update/mismatch_mean", "update/mismatch_max"}, "", "", "the mean grows beyond 0.05: the engine samples from another policy than the one that is trained."},
		{"Staleness", []string{"update/staleness_mean", "update/staleness_max"}, "", "", "it stays at its bound: the trainer is faster than the rollouts."},
		{"Entropy", []string{"update/entropy"}, "", "", "it falls towards 0 early: the policy stops exploring. A sudden rise is text that falls apart."},
		{"KL to the reference", []string{"update/kl"}, "", "", "it grows faster and faster: the policy leaves the model that it began from."},
		{"Gradient norm", []string{"update/grad_norm"}, "", "", "single steps stand out by ten times and more."},
		{"Response length", []string{"length/response_mean", "length/trained_max"}, "", "", "it grows without a better reward, or reaches the token limit."},
		{"Failures by origin", []string{"errors/ORIGIN"}, "", "", "it is not 0 for several steps: failed trajectories are not trained, so the batch shrinks."},
		{"Seconds by phase", []string{"seconds/step", "seconds/wait", "seconds/train", "seconds/sync", "seconds/tools"}, "", "", "waiting is most of the step: sampling is what limits the run."},
		{"Tokens per second", []string{"tokens/sample_per_second", "tokens/train_per_second"}, "", "", "it falls at the same response length: a machine, a server or a tool has become slow."},
		{"Waiting for environments", []string{"environments/wait_p50", "environments/wait_p99", "environments/reset_p99", "environments/step_p99"}, "", "", "it grows to the length of a turn: the pool is too small."},
		{"Groups without a signal", []string{"groups/flat", "groups/dropped", "groups/too_stale"}, "", "", "flat is most of the groups: the tasks are too easy or too hard."},
		{"Tool calls", []string{"tools/calls", "tools/failed", "tools/parse_errors"}, "", "", "failed or unreadable calls grow with the calls."},
	}
	for i := range out {
		out[i].Means = sentence(explained[out[i].Keys[0]])
		out[i].Worry = "Worry when " + out[i].Worry
		out[i].Unit = units[out[i].Keys[0]]
		for _, key := range out[i].Keys {
			if units[key] != out[i].Unit {
				out[i].Unit = ""
			}
		}
	}
	return append(out,
		Curve{"Loss of fine-tuning", []string{"sft/loss", "eval/loss"}, units["sft/loss"], sentence(explained["sft/loss"]), "Worry when it falls on the training data while the held-out loss rises."},
		Curve{"Divergence from the teacher", []string{"distill/reverse_kl", "eval/reverse_kl"}, units["distill/reverse_kl"], sentence(explained["distill/reverse_kl"]), "Worry when it stops falling far above 0."})
}

// sentence makes one of a tag's text.
func sentence(doc string) string {
	if doc == "" {
		return ""
	}
	return strings.ToUpper(doc[:1]) + doc[1:] + "."
}
