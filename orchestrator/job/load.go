package job

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Options of Load.
type Options struct {
	Set    []string                         // key.path=value, in order; the last wins
	Env    func(name string) (string, bool) // nil: the process's environment
	Shown  string                           // of Parse: the file that messages name, where the text is not that of path; "" is path
	Agents *agents.Registry                 // kinds and formats that agent may name; nil: those of package agents
}

const maxFile = 1 << 20 // bytes of a job file

// position is where the value of path stands, or the closest value around it.
func (d *decoder) position(path string) Problem {
	for {
		if n := d.at[path]; n != nil {
			p := Problem{File: d.file, Line: n.Line, Column: n.Column}
			if option, ok := d.origin[n]; ok {
				p.File, p.Line = option, 0
			}
			return p
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return Problem{File: d.file}
		}
		path = path[:i]
	}
}

// Fail makes the error of a problem that was found later in the value of path, such as trainer.steps.
func (j *Job) Fail(path, format string, args ...any) error {
	return asError([]Problem{j.problem(path, format, args...)})
}

func (j *Job) problem(path, format string, args ...any) Problem {
	p := j.at(path)
	p.Text, p.key = path+": "+plainWords(fmt.Sprintf(format, args...)), path
	return p
}

// Source is the job as it runs, as a job file: every default filled in, --set applied. A value that came from the
// environment stands as ${NAME}, and a secret that the file held literally as (secret).
func (j *Job) Source() []byte { return j.source }

// ParseAs reads another job with the kinds and formats that j was read with, such as an earlier job of its run folder.
func (j *Job) ParseAs(path string, data []byte) (*Job, error) {
	return Parse(path, data, Options{Agents: j.agents})
}

// Path is the job file's.
func (j *Job) Path() string { return j.path }

// Resolve makes a path that the job reads absolute or relative to the working folder: it is looked for in the folder of the job file. Where
// nothing is there and something lies at the same path in the working folder, it is that (FoundElsewhere).
func (j *Job) Resolve(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	own := filepath.Join(filepath.Dir(j.path), path)
	if j.FoundElsewhere(path) != "" {
		return filepath.Clean(path)
	}
	return own
}

// FoundElsewhere is the note that a relative path is that of a file in the working folder, because the folder of the job file has none; "": it
// is not.
func (j *Job) FoundElsewhere(path string) string {
	if path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, "~/") {
		return ""
	}
	own := filepath.Join(filepath.Dir(j.path), path)
	if filepath.Clean(own) == filepath.Clean(path) || exists(own) || !exists(path) {
		return ""
	}
	return fmt.Sprintf("%s is taken from the working folder, because %s is not there; paths of a job file are relative to its folder: write it so that it works from anywhere", path, own)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Unreadable is the error of a file that the job names in key and that cannot be read.
func (j *Job) Unreadable(key, path string, err error) error {
	return j.Fail(key, "the file %s cannot be read: %s; relative paths are looked for in the folder of the job file, then in the working folder", j.Resolve(path), reason(err))
}

// Load reads, completes and checks a job file. sets are overrides of the form key.path=value, checked like the file
// itself. What is wrong with the job is an *Error.
func Load(path string, sets ...string) (*Job, error) { return LoadWith(path, Options{Set: sets}) }

// LoadWith is Load with options.
func LoadWith(path string, o Options) (*Job, error) {
	j, err := Draft(path, o)
	if err != nil {
		return nil, err
	}
	return j, nil
}

// Draft is LoadWith, but returns the job beside its error: with defaults in place of what could not be read, so that the rest of it can be
// checked in the same round (Collect). nil: nothing of it could be read.
func Draft(path string, o Options) (*Job, error) {
	fail := func(format string, args ...any) error {
		return &Error{Lines: []string{path + ": " + fmt.Sprintf(format, args...)}}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fail("the job file cannot be read: %s; give the path of a job file, such as examples/calculator.yaml", reason(err))
	case info.IsDir():
		return nil, fail("this is a folder; give the path of a job file")
	case info.Size() > maxFile:
		return nil, fail("the file has %d bytes; a job file has at most %d", info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fail("the job file cannot be read: %s", reason(err))
	}
	return draft(path, data, o)
}

func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// Parse is LoadWith for text in memory; path names it in messages (but see Options.Shown) and anchors its relative paths.
func Parse(path string, data []byte, o Options) (*Job, error) {
	j, err := draft(path, data, o)
	if err != nil {
		return nil, err
	}
	return j, nil
}

// draft is Draft for text in memory.
func draft(path string, data []byte, o Options) (*Job, error) {
	if o.Agents == nil {
		o.Agents = agents.NewRegistry()
	}
	d := &decoder{file: cmp.Or(o.Shown, path), env: o.Env, agents: o.Agents, origin: map[*yaml.Node]string{}, at: map[string]*yaml.Node{}, secrets: map[string]string{}, given: map[string]bool{}, broken: broken{}}
	if d.env == nil {
		d.env = os.LookupEnv
	}
	root := d.document(data)
	if root == nil {
		return nil, asError(d.problems)
	}
	for _, s := range o.Set {
		d.set(root, s)
	}
	j := &Job{path: path, secrets: d.secrets, agents: o.Agents}
	d.structure(d.follow(root), reflect.ValueOf(j).Elem(), "")
	j.at = d.position
	d.completeEnvironment(j)
	d.completeTree(j)
	j.Agent.completeAgent(o.Agents)
	if j.Output == "" && j.Name != "" {
		j.Output = filepath.Join("runs", j.Name)
	}
	j.broken, j.given = d.broken, d.given
	if d.follow(root).Kind != yaml.MappingNode {
		return nil, asError(d.problems)
	}
	d.check(j)
	if len(d.problems) > 0 {
		return j, asError(d.problems)
	}
	var err error
	j.source, err = j.effective()
	return j, err
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// document parses exactly one document.
func (d *decoder) document(data []byte) *yaml.Node {
	broken := func(err error) {
		p := Problem{File: d.file, Line: 1, Column: 1, Text: "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			p.Line, _ = strconv.Atoi(m[1])
			p.Text = "not YAML: " + err.Error()[len(m[0]):]
		}
		if line := indentedByTab(data); line > 0 {
			p.Line, p.Column, p.Text = line, 1, "a tab indents this line, and YAML takes blanks only; write two spaces for each tab"
		}
		d.problems = append(d.problems, p)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			d.problems = append(d.problems, Problem{File: d.file, Line: 1, Column: 1, Text: "the file is empty; a job begins with version: 1"})
		} else {
			broken(err)
		}
		return nil
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		d.fail(&second, "a second document begins here; a job file holds one")
		return nil
	case !errors.Is(err, io.EOF):
		broken(err)
		return nil
	}
	if len(doc.Content) != 1 {
		d.problems = append(d.problems, Problem{File: d.file, Line: 1, Column: 1, Text: "the file is empty; a job begins with version: 1"})
		return nil
	}
	return doc.Content[0]
}

// indentedByTab is the first line that begins with a tab, behind blanks or not; 0: there is none.
func indentedByTab(data []byte) int {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if rest := bytes.TrimLeft(text, " "); len(rest) > 0 && rest[0] == '\t' && len(bytes.TrimSpace(rest)) > 0 {
			return line
		}
	}
	return 0
}

// set applies one --set option to the tree.
func (d *decoder) set(root *yaml.Node, option string) {
	label := "--set " + option
	fail := func(format string, args ...any) {
		d.problems = append(d.problems, Problem{File: label, Text: fmt.Sprintf(format, args...)})
	}
	path, text, ok := strings.Cut(option, "=")
	if !ok || path == "" {
		fail("write key.path=value, such as trainer.steps=10")
		return
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		fail("the value is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	if len(doc.Content) == 1 {
		value = doc.Content[0]
	}
	d.mark(value, label)
	n := root
	keys := strings.Split(path, ".")
	for i, key := range keys {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		last := i == len(keys)-1
		next := child(n, key)
		switch {
		case next == nil && n.Kind == yaml.MappingNode:
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
			d.origin[k], d.origin[next] = label, label
			if last {
				next = value
			}
			n.Content = append(n.Content, k, next)
		case next == nil:
			fail("%s is %s, it has no %q", strings.Join(keys[:i], "."), kindName(n), key)
			return
		case last:
			*next = *value
			d.origin[next] = label
		case next.Kind == yaml.ScalarNode && next.ShortTag() == "!!null":
			*next = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			d.origin[next] = label
		}
		n = next
	}
}

// mark names the option as the origin of every node below n.
func (d *decoder) mark(n *yaml.Node, label string) {
	d.origin[n] = label
	for _, c := range n.Content {
		d.mark(c, label)
	}
}

func child(n *yaml.Node, key string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}

// check finds what is wrong between values.
func (d *decoder) check(j *Job) {
	fail := func(path, format string, args ...any) {
		p := d.position(path)
		p.Text, p.key = path+": "+fmt.Sprintf(format, args...), path
		if !d.broken.blames(p.key, p.Text) {
			d.problems = append(d.problems, p)
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
	d.checkEngine(j.Engine, fail)
	d.checkMode(j, fail)
	d.checkAgent(j, fail)
	if j.Engine.Sleep > 0 && j.Engine.Kind != "vllm" && engines.BuiltIn(j.Engine.Kind) {
		fail("engine.sleep", "%d: only servers of kind vllm can sleep", j.Engine.Sleep)
	}
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
}

// checkEngine refuses keys of the block engine that its kind does not read. Which kinds there are is known where the registry of engines is.
func (d *decoder) checkEngine(e Engine, fail func(path, format string, args ...any)) {
	if engines.BuiltIn(e.Kind) {
		if len(e.Params) > 0 {
			fail("engine.params", "they are for a kind of engine that the program registers; %s has keys of its own", e.Kind)
		}
		return
	}
	all := (*engines.Registry)(nil).Names()
	var unset Engine // what a complete job says of the keys that nobody set
	(&decoder{at: map[string]*yaml.Node{}}).defaults(&yaml.Node{}, reflect.ValueOf(&unset).Elem(), "engine", map[string]bool{})
	given, left := reflect.ValueOf(e), reflect.ValueOf(unset)
	for i := range given.NumField() {
		key := keyOf(given.Type().Field(i))
		if slices.Contains([]string{"kind", "params", "folder", "tolerance", "sleep"}, key) {
			continue
		}
		if path := "engine." + key; !reflect.DeepEqual(given.Field(i).Interface(), left.Field(i).Interface()) {
			fail(path, "only the kinds %s take it; an engine of kind %q takes params: {…}; leave it out%s", strings.Join(all, ", "), e.Kind, near(e.Kind, all))
		}
	}
}

// checkMode finds contradictions between the settings of how rollouts and updates overlap.
func (d *decoder) checkMode(j *Job, fail func(path, format string, args ...any)) {
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
		fail("deterministic", "true, but the batches of mode async and of oversample depend on what ends first; agentfly replay repeats such a run")
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

// Given tells whether the job file or --set names the key; else its default stands there.
func (j *Job) Given(path string) bool { return j.given[path] }
