package job

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// check finds what is wrong between values.
func check(j *Job) {
	fail := func(path, format string, args ...any) {
		p := j.found.position(path)
		p.Text, p.key = path+": "+fmt.Sprintf(format, args...), path
		if !j.broken.blames(p.key, p.Text) {
			j.found.problems = append(j.found.problems, p)
		}
	}
	if j.Rollout.MaxNewTokens >= j.Rollout.MaxTokens {
		fail("rollout.max_new_tokens", "%d tokens do not fit into rollout.max_tokens (%d) together with a prompt", j.Rollout.MaxNewTokens, j.Rollout.MaxTokens)
	}
	if date := j.Model.TemplateDate; date != "" {
		if _, err := time.Parse(time.DateOnly, date); err != nil {
			fail("model.template_date", "%q is not a day; write YYYY-MM-DD, such as 2026-01-31", date)
		}
	}
	if (j.Model.Path == "") == (j.Model.Scratch == nil) {
		fail("model", "exactly one of path and scratch is needed")
	}
	switch e := j.Engine; {
	case e.Kind == "vllm" && (len(e.URLs) == 0) == (e.Serve == nil):
		fail("engine", "kind vllm needs exactly one of urls and serve")
	case e.Kind == "openai" && (len(e.URLs) != 1 || e.ServedModel == "" || e.Serve != nil):
		fail("engine", "kind openai needs one url and served_model, and no serve")
	case e.Kind == "local" && (len(e.URLs) > 0 || e.Serve != nil):
		fail("engine.kind", "local takes neither urls nor serve; did you mean vllm?")
	}
	checkEngine(j.Engine, fail)
	checkMode(j, fail)
	checkAgent(j, fail)
	if j.Engine.Sleep == 2 && j.Engine.Weights == "lora" {
		fail("engine.sleep", "2 drops the weights that an adapter comes on top of; use 1")
	}
	if j.SFT == nil && j.Distill == nil && len(j.Rewards) == 0 { // sft: null excuses nothing
		fail("rewards", "they are missing; name at least one")
	}
	if d := j.Distill; d != nil && (d.Teacher.Path == "") == (len(d.Teacher.URLs) == 0) {
		fail("distill.teacher", "exactly one of path and urls is needed")
	}
	if j.Distill != nil && j.SFT != nil {
		fail("distill", "a job has one of sft and distill")
	}
	if j.Distill == nil && j.Control.ShuffleTeacher {
		fail("control.shuffle_teacher", "there is no teacher without a block distill")
	}
	if j.SFT == nil && (j.Data.Run != "" || j.Data.MinReward != nil || j.Data.BestOf != 0) {
		fail("data", "run, min_reward and best_of choose what a job with a block sft learns; add sft: {}, or leave them out")
	}
	if j.Data.Run == "" && (j.Data.MinReward != nil || j.Data.BestOf != 0) && j.SFT != nil {
		fail("data", "min_reward and best_of choose among the trajectories of data.run, which is missing")
	}
	if n := j.Trainer.CheckpointLayers; n > 0 && !j.Trainer.Checkpointing {
		fail("trainer.checkpoint_layers", "%d does nothing without trainer.checkpointing: true", n)
	}
	if fault := j.Trainer.WarmupFault("trainer.steps"); fault != "" && (j.SFT == nil || j.SFT.Epochs == 0) { // epochs are counted with the data
		fail("trainer.warmup_steps", "%s", fault)
	}
	if !namePattern.MatchString(j.Name) {
		fail("name", "%q must be letters, digits, dots, _ and -, and begin with a letter or digit", j.Name)
	}
	checkColumns("data.columns", j.Data.Columns, fail)
	checkData(j, fail)
	checkEnvironment(j, fail)
	checkTree(j, fail)
	switch l := j.Model.LoRA; {
	case l.Path != "" && (l.Rank > 0 || l.Alpha > 0 || len(l.Targets) > 0):
		fail("model.lora.path", "the adapter brings its rank, alpha and targets; leave those out")
	case !l.On() && (l.Alpha > 0 || len(l.Targets) > 0):
		fail("model.lora", "alpha and targets need a rank")
	}
	checkNames(j, fail)
	checkReports(j, fail)
	if !j.copied { // older programs took them
		checkUnread(j, fail)
	}
}

// checkUnread refuses what is set and would do nothing.
func checkUnread(j *Job, fail func(path, format string, args ...any)) {
	if k := j.Algorithm.KL; k.Coefficient == 0 && k != (algorithms.KL{}) && !j.given["algorithm.kl.coefficient"] {
		fail("algorithm.kl", "without a coefficient there is no penalty; set kl.coefficient, or leave kl out")
	}
	if j.Agent.Kind != agents.External {
		return
	}
	var unset Rollout // what a complete job says of the keys that nobody set
	setDefaults(reflect.ValueOf(&unset).Elem(), "rollout")
	for _, f := range []struct {
		key          string
		value, unset any
	}{
		{"tool_timeout", j.Rollout.ToolTimeout, unset.ToolTimeout},
		{"tool_tokens", j.Rollout.ToolTokens, unset.ToolTokens},
		{"max_failed_tool", j.Rollout.MaxFailedTool, unset.MaxFailedTool},
		{"max_raised", j.Rollout.MaxRaised, unset.MaxRaised},
	} {
		if f.value != f.unset {
			fail("rollout."+f.key, "%v: an agent of kind external calls its tools itself; leave it out", f.value)
		}
	}
}

// registered stands for the kinds of engines that the program registers.
const registered = "kinds that the program registers"

// engineKeys are the keys of the block engine that a kind reads.
var engineKeys = map[string][]string{
	"local":    {"cache_tokens", "max_sequences", "device", "dtype"},
	"openai":   {"urls", "served_model", "api_key"},
	"vllm":     {"urls", "served_model", "api_key", "weights", "tolerance", "folder", "sleep", "serve"},
	registered: {"params", "tolerance", "folder", "sleep"},
}

// entryOf is the key of engineKeys for a kind.
func entryOf(kind string) string {
	if engines.BuiltIn(kind) {
		return kind
	}
	return registered
}

// engineField is a key of the block engine in a job, and the value that it has where nobody sets it.
type engineField struct {
	key          string
	value, unset reflect.Value
}

// unread are the keys of the block engine that are set and that its kind does not read.
func (e *Engine) unread() (out []engineField) {
	read := engineKeys[entryOf(e.Kind)]
	var unset Engine // what a complete job says of the keys that nobody set
	setDefaults(reflect.ValueOf(&unset).Elem(), "engine")
	given, left := reflect.ValueOf(e).Elem(), reflect.ValueOf(unset)
	for i := range given.NumField() {
		f := engineField{keyOf(given.Type().Field(i)), given.Field(i), left.Field(i)}
		if f.key == "kind" || slices.Contains(read, f.key) || f.key == "params" && f.value.Len() == 0 || reflect.DeepEqual(f.value.Interface(), f.unset.Interface()) {
			continue
		}
		out = append(out, f)
	}
	return out
}

// dropUnread gives keys of the block engine that its kind does not read their defaults: all in a run's copy; where --set names the kind, those that
// stand in the job file, which were meant for another kind.
func (j *Job) dropUnread(copied bool) {
	var option string // that names the kind
	if j.given["engine.kind"] {
		option = j.found.origin[j.found.at["engine.kind"]]
	}
	for _, f := range j.Engine.unread() {
		path := "engine." + f.key
		if !copied {
			if option == "" || j.found.fromSet(j.found.at[path]) {
				continue
			}
			readers := readersOf(f.key, (*engines.Registry)(nil).Names())
			j.leftOut = append(j.leftOut, fmt.Sprintf("%s of the job file is left out because of %s: %s", path, option, readers))
		}
		f.value.Set(f.unset)
		delete(j.secrets, path)
	}
}

// checkEngine refuses keys of the block engine that its kind does not read. Which kinds there are is known where the registry of engines is.
func checkEngine(e Engine, fail func(path, format string, args ...any)) {
	kind, all := entryOf(e.Kind), (*engines.Registry)(nil).Names()
	for _, f := range e.unread() {
		path, readers := "engine."+f.key, readersOf(f.key, all)
		switch {
		case kind == registered:
			fail(path, "%s; an engine of kind %q takes params: {…}; leave it out%s", readers, e.Kind, near(e.Kind, all))
		case f.key == "params":
			fail(path, "they are for a kind of engine that the program registers; %s has keys of its own", kind)
		case kind == "vllm" && (f.key == "device" || f.key == "dtype"):
			fail(path, "%s; leave it out (a vLLM server that the job starts has engine.serve.%s)", readers, f.key)
		case f.key != "urls" && f.key != "serve": // the kinds that need or refuse these say so
			fail(path, "%s; leave it out", readers)
		}
	}
	if kind == "vllm" && e.Serve != nil {
		checkServe(*e.Serve, fail)
	}
}

// readersOf says which kinds read a key of the block engine.
func readersOf(key string, builtIn []string) string {
	kinds := slices.DeleteFunc(slices.Clone(builtIn), func(kind string) bool { return !slices.Contains(engineKeys[kind], key) })
	text := "only the kinds " + strings.Join(kinds, ", ") + " take it"
	switch len(kinds) {
	case 0:
		return "only " + registered + " take it"
	case 1:
		text = "only the kind " + kinds[0] + " takes it"
	}
	if slices.Contains(engineKeys[registered], key) {
		text += ", and " + registered
	}
	return text
}

// checkServe refuses a device that is none, and variables of the environment that the job itself sets.
func checkServe(s Serve, fail func(path, format string, args ...any)) {
	if _, ok := s.Devices(); !ok {
		fail("engine.serve.device", "%q is no device; allowed are auto, cpu, cuda, and numbers of CUDA devices such as cuda:1 or cuda:0,1", s.Device)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			fail("engine.serve.env", "%q is no name of a variable", name)
		case name == "VLLM_API_KEY":
			fail("engine.serve.env."+name, "the key is engine.api_key")
		case name == "CUDA_VISIBLE_DEVICES" && strings.HasPrefix(s.Device, "cuda:"):
			fail("engine.serve.env."+name, "engine.serve.device chooses the devices; leave one of them out")
		}
	}
}

// checkMode finds contradictions between the settings of how rollouts and updates overlap.
func checkMode(j *Job, fail func(path, format string, args ...any)) {
	r := j.Rollout
	overlaps := r.Mode == "async" || r.Oversample > 1
	switch {
	case r.Mode == "async" && r.Oversample > 1:
		fail("rollout.oversample", "mode async samples max_staleness + 1 batches at once already; leave it out")
	case r.Mode == "async" && r.MaxStaleness == 0:
		fail("rollout.max_staleness", "0 lets nothing be sampled beside an update; set 1 or more, or use mode sync")
	case r.Oversample > 1 && r.MaxStaleness == 0:
		fail("rollout.max_staleness", "0, but what oversample cuts goes on under the next policy version; set 1 or more")
	case !overlaps && r.MaxStaleness > 0:
		fail("rollout.max_staleness", "%d, but mode sync without oversample trains on nothing stale; use mode async, or leave it out", r.MaxStaleness)
	case !overlaps && r.Stale == "drop":
		fail("rollout.stale", "drop, but mode sync without oversample has nothing stale; use mode async, or leave it out")
	}
	if !overlaps {
		return
	}
	if r.Mode == "async" && j.Engine.Sleep > 0 {
		fail("engine.sleep", "%d: mode async samples while the trainer needs the memory; use mode sync, or give the servers a device of their own", j.Engine.Sleep)
	}
	if j.Deterministic {
		fail("deterministic", "true, but the batches of mode async and of oversample depend on what ends first; agentfly replay repeats such a run where its engine computes on CPUs")
	}
	if j.SFT != nil {
		fail("rollout.mode", "sft samples nothing that could overlap; leave mode and oversample out")
	}
	if j.Distill != nil {
		fail("rollout.mode", "distill compares the teacher with the policy that samples, so nothing may be stale; leave mode and oversample out")
	}
}

// checkNames finds adapter targets that no model has, and tools and rewards that are given twice. Which tools and rewards there
// are is known to their registries.
func checkNames(j *Job, fail func(path, format string, args ...any)) {
	all := cgo.AdapterTargets[:]
	for i, t := range j.Model.LoRA.Targets {
		if !slices.Contains(all, t) {
			fail("model.lora.targets."+strconv.Itoa(i), "there is no %q; allowed: %s%s", t, strings.Join(all, ", "), near(t, all))
		}
	}
	seen := map[string]bool{}
	for i, t := range j.Agent.Tools {
		path := "agent.tools." + strconv.Itoa(i)
		if t.Source != "" {
			continue
		}
		if seen[t.Name] {
			fail(path, "%q is given twice", t.Name)
		}
		seen[t.Name] = true
	}
	seen = map[string]bool{}
	for i, r := range j.Rewards {
		path := "rewards." + strconv.Itoa(i)
		if seen[r.Label()] {
			fail(path, "%q is given twice; give one of the two another name with as: NAME", r.Label())
		}
		seen[r.Label()] = true
	}
}
