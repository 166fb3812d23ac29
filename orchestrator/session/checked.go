package session

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

// Checked is a job that was looked at, and its data as far as they could be read without running anything.
type Checked struct {
	Algorithm *algorithms.Algorithm // nil where something was wrong
	Learn     *data.SFT             // what a job of supervised fine-tuning learns; nil: nothing of the kind
	session   *Session
	train     *data.Tasks // nil: nothing of the kind
	held      *data.Tasks
}

// Check looks at all of a job that can be wrong without its model. What it makes for that, tools and rewards, is what the session then has.
func Check(ctx context.Context, s *Session, r Registries) (*Checked, error) {
	j := s.Job
	var found []error
	add := func(err error) { found = append(found, err) }
	notePaths(j, s.Notes.Once)
	equipped := s.Equip(ctx, r)
	add(checkDevice(j))
	c := &Checked{session: s}
	add(c.readData())
	if j.Agent.Examples != "" {
		_, err := data.ReadExamples(j.Resolve(j.Agent.Examples))
		if err != nil {
			add(j.Fail("agent.examples", "%v", err))
		}
	}
	add(checkWeights(j))
	add(checkLocal(j))
	add(checkServe(j))
	add(checkURLs(j))
	add(checkAgent(ctx, j))
	algorithm, err := job.Algorithm(j, r.Algorithms)
	add(err)
	add(equipped)
	if err := j.Collect(found...); err != nil {
		return c, err
	}
	c.Algorithm = algorithm
	return c, nil
}

// readData reads the job's data, as far as that runs nothing.
func (c *Checked) readData() (err error) {
	j, world := c.session.Job, c.session.World
	switch {
	case j.SFT == nil && (j.Environment == nil || world != nil):
		c.train, c.held, _, err = data.Read(j, world.Tasks())
	case j.SFT != nil && (len(j.Data.Train) > 0) != (j.Data.Run != ""): // else it is refused for that
		c.Learn, err = data.ReadSFT(j)
	}
	return err
}

// NotRun is what a session that only looks left out, because it would have run something of the job's.
func (c *Checked) NotRun() []string { return c.session.resources.NotRun() }

// checkDevice refuses a device that is not there.
func checkDevice(j *job.Job) error {
	if !policy.HasDevice(j.Device) {
		return j.Fail("device", "%s: libtorch sees no CUDA device here; use auto or cpu (agentfly doctor says what is missing)", j.Device)
	}
	return nil
}

// Text opens the job's model without its weights, the renderer and the prompt: what is wrong with the model's path, with template,
// context, limits and the run's folder is told without loading anything large. Check may have found something wrong before.
func (c *Checked) Text() error {
	s := c.session
	j := s.Job
	wrong := []error{checkPaths(j), checkOutput(j)}
	var err error
	if s.Policy, err = lookPolicy(j); err != nil || s.Policy == nil {
		return j.Collect(append(wrong, err)...)
	}
	wrong = append(wrong, checkRoom(j, s.Policy), checkRank(j, s.Policy))
	if s.agent == nil { // it needs what is not run, or could not be made
		return j.Collect(wrong...)
	}
	if s.text, err = newText(j, s.Policy, "", s.agent, s.Notes.Know); err != nil {
		return j.Collect(append(wrong, err)...)
	}
	if s.Sampler.Tools != nil {
		wrong = append(wrong, s.makeSampler())
	}
	return j.Collect(wrong...)
}

// lookPolicy opens the job's model without its weights.
func lookPolicy(j *job.Job) (*policy.Policy, error) {
	if (j.Model.Path == "") == (j.Model.Scratch == nil) {
		return nil, nil //nolint:nilnil // the job is refused for that already
	}
	if c := j.Model.Scratch; c != nil {
		p, err := policy.LookScratch(ScratchOf(c), c.Alphabet, c.ChatTemplate)
		if err != nil {
			return nil, j.Fail("model.scratch", "%v", err)
		}
		return p, nil
	}
	p, err := policy.Look(j.ModelPath(j.Model.Path))
	if err != nil {
		return nil, j.Fail("model.path", "%v", err)
	}
	return p, nil
}

// checkPaths refuses a teacher, an adapter or a template that is not there.
func checkPaths(j *job.Job) error {
	var wrong []error
	if d := j.Distill; d != nil && d.Teacher.Path != "" {
		if _, err := policy.Look(j.ModelPath(d.Teacher.Path)); err != nil {
			wrong = append(wrong, j.Fail("distill.teacher.path", "%v", err))
		}
	}
	wrong = append(wrong, checkAdapter(j))
	if path := j.Model.ChatTemplate; path != "" {
		if _, err := os.Stat(j.Resolve(path)); err != nil {
			wrong = append(wrong, j.Unreadable("model.chat_template", path, err))
		}
	}
	return j.Collect(wrong...)
}

// checkAdapter refuses a folder that holds no adapter.
func checkAdapter(j *job.Job) error {
	if j.Model.LoRA.Path == "" {
		return nil
	}
	dir := j.Resolve(j.Model.LoRA.Path)
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return j.Fail("model.lora.path", "%s holds no adapter (%s); name the folder of a PEFT adapter", dir, name)
		}
	}
	return nil
}

// checkServe refuses a vLLM that is not there.
func checkServe(j *job.Job) error {
	if j.Engine.Kind != "vllm" || j.Engine.Serve == nil {
		return nil
	}
	command := j.Engine.Serve.Command
	program := j.Program(command)
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	if filepath.IsAbs(program) {
		return j.Fail("engine.serve.command", "the program %q is not there, or may not be run; it is looked for at %s", command, program)
	}
	return j.Fail("engine.serve.command", "the program %q is not on PATH; install vLLM (pip install vllm), or name its command with a path", command)
}

// checkRoom refuses limits that the model or the engine's cache cuts short. A run takes the lower one, so that what looks like one setting is
// another's doing.
func checkRoom(j *job.Job, p *policy.Policy) error {
	if j.SFT != nil {
		return nil
	}
	context, limit := p.Config.MaxContext(), j.Rollout.MaxTokens
	if context > 0 && limit > context && j.ChosenTokens() {
		return j.Fail("rollout.max_tokens", "%d tokens are more than the model's context, %d; set %d or less", limit, context, context)
	}
	if context > 0 {
		limit = min(limit, context)
	}
	if j.Engine.Kind == "local" && j.Engine.Holds() < limit {
		return j.Fail("engine.cache_tokens", "%d tokens do not hold one trajectory, which may have %d (rollout.max_tokens, or the model's context); set at least %d, times as many as are sampled at once, or lower rollout.max_tokens", j.Engine.CacheTokens, limit, limit)
	}
	if o := j.Algorithm.Overlong; o.Buffer > 0 && o.Buffer >= limit {
		return j.Fail("algorithm.overlong.buffer", "%d tokens are not less than the %d that the model takes", o.Buffer, limit)
	}
	return nil
}

// mostTasks is how many tasks are looked at for what the rewards need and for prompts that are too long.
const mostTasks = 20_000

// Tasks refuses data whose tasks lack what the rewards read, and prompts that leave no room for a reply.
func (c *Checked) Tasks() error {
	j := c.session.Job
	var wrong []error
	for _, set := range []struct {
		name  string
		tasks *data.Tasks
	}{{"data.train", c.train}, {"data.eval", c.held}} {
		if set.tasks == nil {
			continue
		}
		tasks := set.tasks.Tasks[:min(len(set.tasks.Tasks), mostTasks)]
		for _, t := range c.session.terms {
			wrong = append(wrong, checkFields(j, t, set.name, tasks))
		}
		wrong = append(wrong, c.checkPrompts(set.name, tasks))
	}
	return j.Collect(wrong...)
}

// checkFields holds a reward against the fields of tasks.
func checkFields(j *job.Job, t term, name string, tasks []trajectory.Task) error {
	var first error
	lacking := 0
	for _, task := range tasks {
		err := rewards.CheckTask(t.reward, task)
		if err == nil {
			continue
		}
		if lacking++; first == nil {
			first = err
		}
	}
	if first == nil {
		return nil
	}
	return j.Fail(fmt.Sprintf("rewards.%d", t.at), "%s: %v (%d of %d tasks of %s; their trajectories would fail)", t.reward.Name(), first, lacking, len(tasks), name)
}

// checkPrompts finds prompts after which there is no room, or which the template cannot render.
func (c *Checked) checkPrompts(name string, tasks []trajectory.Task) error {
	s := c.session
	if s.text == nil || s.World != nil || s.Job.SFT != nil || s.Sampler.MaxTotal == 0 {
		return nil
	}
	long, most := 0, 0
	first := ""
	for _, task := range tasks {
		p, err := c.prompted(task)
		if err != nil {
			return s.Job.Fail(name, "the prompt of task %q cannot be rendered: %v", task.ID, err)
		}
		if n := len(p.IDs); n >= s.Sampler.MaxTotal {
			if long++; first == "" {
				first = task.ID
			}
			most = max(most, n)
		}
	}
	if long == 0 {
		return nil
	}
	key, limit := "rollout.max_tokens", "rollout.max_tokens"
	if s.Sampler.MaxTotal < s.Job.Rollout.MaxTokens {
		limit = "the model's context"
	}
	return s.Job.Fail(key, "%d of %d prompts of %s leave no room for a reply: they have up to %d tokens, the first is task %q, and a trajectory ends at %d (%s); raise it, or shorten the prompts", long, len(tasks), name, most, first, s.Sampler.MaxTotal, limit)
}

// Prompt is a rendered prompt.
type Prompt struct {
	Task    string
	IDs     []int32
	Text    string
	Unknown string // the part of the text that the tokenizer has no tokens for; "": none
}

// prompted renders the prompt of a task.
func (c *Checked) prompted(task trajectory.Task) (p Prompt, err error) {
	s := c.session
	p.Task = task.ID
	messages := append(append([]trajectory.Message{}, s.Sampler.Prefix...), task.Prompt...)
	p.IDs, p.Text, err = s.text.renderer.Prompt(messages, s.Sampler.Schemas, true)
	return p, err
}

// Example is the prompt of the job's first task; nil: it has none that is known before a rollout.
func (c *Checked) Example() *Prompt {
	if c.session.text == nil || c.train == nil || len(c.train.Tasks) == 0 || c.session.World != nil || c.session.Sampler.MaxTotal == 0 {
		return nil
	}
	p, err := c.prompted(c.train.Tasks[0])
	if err != nil {
		return nil
	}
	p.Unknown = unknownIn(c.session.Policy, p.Text, p.IDs)
	return &p
}

// unknownIn is the part of a text that the tokenizer has no tokens for: from the first to the last character that does not come back from it;
// "": it knows all. A text that comes back in another form, without a token for what is unknown and with as many characters, was normalised.
func unknownIn(p *policy.Policy, text string, ids []int32) string {
	back := p.Tokenizer.Decode(ids, false)
	if back == text || !slices.ContainsFunc(ids, unknownID(p)) && seen(back) >= seen(text) {
		return ""
	}
	had, has := []rune(text), []rune(back)
	from, to := 0, 0
	for from < len(had) && from < len(has) && had[from] == has[from] {
		from++
	}
	for to < len(had)-from && to < len(has)-from && had[len(had)-1-to] == has[len(has)-1-to] {
		to++
	}
	return string(had[from : len(had)-to])
}

// unknownID tells which id stands for what is unknown.
func unknownID(p *policy.Policy) func(id int32) bool {
	var ids []int32
	for _, name := range []string{p.SpecialTokens["unk_token"], "<unk>", "[UNK]"} {
		if id, ok := p.Tokenizer.ID(name); ok && name != "" {
			ids = append(ids, id)
		}
	}
	return func(id int32) bool { return slices.Contains(ids, id) }
}

// seen counts the characters of a text that are no white space.
func seen(text string) int {
	return len([]rune(strings.Join(strings.Fields(text), "")))
}

// notePaths tells which paths of the job were found in the working folder alone.
func notePaths(j *job.Job, tell func(line string)) {
	paths := []string{j.Model.Path, j.Model.LoRA.Path, j.Model.ChatTemplate, j.Data.Run, j.Agent.Examples}
	if j.Distill != nil {
		paths = append(paths, j.Distill.Teacher.Path)
	}
	for _, one := range slices.Concat(j.Data.Train, j.Data.Eval) {
		paths = append(paths, one.Path)
	}
	for _, path := range paths {
		if line := j.FoundElsewhere(path); line != "" {
			tell(line)
		}
	}
}

// lookedThrough is how many tasks are looked through for characters without tokens.
const lookedThrough = 64

// UnknownNote says that the tokenizer has no tokens for parts of the tasks' prompts; "": it has.
func (c *Checked) UnknownNote() string {
	if c == nil || c.session.text == nil || c.train == nil || c.session.World != nil {
		return ""
	}
	for _, task := range c.train.Tasks[:min(len(c.train.Tasks), lookedThrough)] {
		p, err := c.prompted(task)
		if err != nil {
			return ""
		}
		if unknown := unknownIn(c.session.Policy, p.Text, p.IDs); unknown != "" {
			return fmt.Sprintf("the tokenizer has no tokens for %q in the prompt of task %q: the model reads %q; use a model whose tokenizer knows it, or rewrite the prompts",
				wording.Clip(unknown, 80), task.ID, wording.Clip(c.session.Policy.Tokenizer.Decode(p.IDs, false), 240))
		}
	}
	return ""
}

// UnknownLearned says that the tokenizer has no tokens for parts of conversations to learn from; "": it has.
func UnknownLearned(p *policy.Policy, learned []*trajectory.Trajectory) string {
	for _, t := range learned[:min(len(learned), lookedThrough)] {
		for _, s := range t.Samples {
			if HasUnknown(p, s.TokenIDs) {
				return fmt.Sprintf("the tokenizer has no tokens for parts of %s: the model reads %q; use a model whose tokenizer knows them, or rewrite the conversations",
					t.ID, wording.Clip(p.Tokenizer.Decode(s.TokenIDs, false), 240))
			}
		}
	}
	return ""
}

// HasUnknown tells whether a token among ids stands for what the tokenizer does not know. One that a text begins or ends with does not, although some
// tokenizers that know all bytes name it so.
func HasUnknown(p *policy.Policy, ids []int32) bool {
	unknown := unknownID(p)
	return slices.ContainsFunc(ids, func(id int32) bool {
		return unknown(id) && int(id) != p.Config.BOS && !slices.Contains(p.Config.EOS, int(id))
	})
}

// Drop forgets the data, but for what UnknownNote looks through.
func (c *Checked) Drop() {
	c.held, c.Learn = nil, nil
	if c.train != nil {
		c.train = &data.Tasks{Tasks: slices.Clone(c.train.Tasks[:min(len(c.train.Tasks), lookedThrough)])}
	}
}
