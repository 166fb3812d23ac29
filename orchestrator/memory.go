package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/doctor"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer/memory"
	"github.com/agentfly/agentfly/trajectory"
)

// Memory is what training a job needs, held against what there is.
type Memory struct {
	Job    string        `json:"job"`
	Ranks  int           `json:"ranks"`
	Parts  []memory.Part `json:"parts"`
	Places []MemoryPlace `json:"places"`
	Notes  []string      `json:"notes"`
}

// MemoryPlace is the host or a device: what lies there at once, and what there is.
type MemoryPlace struct {
	Place    string          `json:"place"`
	Need     memory.Need     `json:"need"` // of a device one rank's, of the host that of all ranks on it
	Has      doctor.Capacity `json:"has"`
	Fits     string          `json:"fits"` // yes; perhaps: all but the bounds does; no; unknown
	Remedies []memory.Remedy `json:"remedies"`
}

// MemoryOptions say what to plan for.
type MemoryOptions struct {
	Ranks  int   // processes that train; 0 and 1: one
	Device int64 // bytes of a CUDA device that need not be here; 0: what this machine trains on
}

// PlanMemory says what training the job needs on each rank. Of the model it reads the configuration alone, and of one that learns conversations, where it
// is there, what lays them out.
func PlanMemory(ctx context.Context, j *job.Job, r Registries, o MemoryOptions) (m Memory, err error) {
	a, err := job.Algorithm(j, r.Algorithms)
	if err != nil {
		return m, err
	}
	ranks := max(o.Ranks, 1)
	if err := processes.Together(j, ranks); err != nil {
		return m, err
	}
	if err := shareable(j); err != nil {
		return m, err
	}
	device := policy.DeviceOf(j.Device)
	if o.Device > 0 && device == "cpu" {
		device = "cuda"
	}
	longest := 0
	if j.SFT != nil {
		longest = lookAtLongest(ctx, j, r)
	}
	s, err := memorySetting(j, a, ranks, device, longest)
	if err != nil {
		return m, err
	}
	return weigh(ctx, j, s, o.Device), nil
}

// lookAtLongest is the tokens of the longest conversation that a job of supervised fine-tuning learns; 0: its data or its model's tokenizer cannot be read,
// which is told elsewhere.
func lookAtLongest(ctx context.Context, j *job.Job, r Registries) int {
	s := session.NewLook(j)
	defer s.Close()
	checked, _ := session.Check(ctx, s, r)
	_ = checked.Text()
	learned, _ := lookAtLearned(s, checked)
	return longestOf(learned)
}

// longestOf is the tokens of the longest sample.
func longestOf(all []*trajectory.Trajectory) (n int) {
	for _, t := range all {
		for _, s := range t.Samples {
			n = max(n, s.Len())
		}
	}
	return n
}

// weigh holds what a setting needs against what there is.
func weigh(ctx context.Context, j *job.Job, s memory.Setting, device int64) Memory {
	plan := memory.Of(s)
	m := Memory{Job: j.Name, Ranks: s.Ranks, Parts: plan.Parts, Notes: []string{}}
	for _, place := range []string{memory.Device, memory.Host} {
		p := MemoryPlace{Place: place, Need: plan.Machine(place, s), Fits: "unknown", Has: doctor.HostMemory(), Remedies: []memory.Remedy{}}
		switch {
		case p.Need.Most == 0:
			continue
		case place == memory.Device && device > 0:
			p.Has = doctor.Capacity{Bytes: device, Of: "a device of --device-memory"}
		case place == memory.Device:
			p.Has = doctor.DeviceMemory(ctx, max(cgo.CUDADevices(), 1))
		}
		switch {
		case p.Has.Bytes == 0:
		case p.Need.Exact > p.Has.Bytes:
			p.Fits = "no"
		case p.Need.Most > p.Has.Bytes:
			p.Fits = "perhaps"
		default:
			p.Fits = "yes"
		}
		if p.Fits != "yes" {
			p.Remedies = append(p.Remedies, memory.Remedies(s, place)...)
		}
		if p.Fits == "yes" && place == s.Place() {
			if n, ok := memory.FewestLayers(s, place, p.Has.Bytes); ok && n < min(s.Checkpoint, s.Model.NumLayers) {
				m.Notes = append(m.Notes, fewer(n, s.Model.NumLayers))
			}
		}
		m.Places = append(m.Places, p)
	}
	if s.CUDA {
		m.Notes = append(m.Notes, "what CUDA's driver and libraries take of a device is not in it")
		if j.Engine.Kind == "vllm" {
			m.Notes = append(m.Notes, "a vLLM server on the same device takes memory of its own: see its --gpu-memory-utilization, and engine.sleep")
		}
	}
	return m
}

// fewer says that so few of the layers need to be computed again.
func fewer(n, layers int) string {
	if n == 0 {
		return "it fits without trainer.checkpointing, which computes layers twice"
	}
	return fmt.Sprintf("it fits with trainer.checkpoint_layers=%d too: %d of %d layers are then computed once", n, layers-n, layers)
}

// room refuses a job of which what is exact exceeds the memory that there is, and notes one of which only the bounds do. What cannot be read of
// its model is told elsewhere. here is the ranks of this machine; 0: all. longest is as memorySetting takes it.
func room(ctx context.Context, j *job.Job, a *algorithms.Algorithm, ranks, here, longest int, note func(string)) error {
	s, err := memorySetting(j, a, max(ranks, 1), policy.DeviceOf(j.Device), longest)
	if err != nil {
		return nil
	}
	s.Here = here
	for _, p := range weigh(ctx, j, s, 0).Places {
		switch p.Fits {
		case "no":
			best := slices.MaxFunc(append([]memory.Remedy{{}}, p.Remedies...), func(x, y memory.Remedy) int { return cmp.Compare(x.Saves.Exact, y.Saves.Exact) })
			advice := "; take a smaller model"
			if best.Change != "" {
				advice = fmt.Sprintf("; most is saved (%s) by %s: %s", memory.GB(best.Saves.Exact), best.Change, best.But)
			}
			return j.Fail("model", "training needs %s of %s memory before a token is computed, and %s has %s%s", memory.GB(p.Need.Exact), p.Place, p.Has.Of, memory.GB(p.Has.Bytes), advice)
		case "perhaps":
			note(fmt.Sprintf("training may need up to %s of %s memory, and %s has %s; agentfly job memory says for what, and what to change", memory.GB(p.Need.Most), p.Place, p.Has.Of, memory.GB(p.Has.Bytes)))
		}
	}
	return nil
}

// shareable refuses a job whose model cannot be shared by as many processes as it says. What cannot be read of the model is told elsewhere.
func shareable(j *job.Job) error {
	n := j.Trainer.TensorParallel
	if n <= 1 {
		return nil
	}
	c, err := configOf(j)
	if err != nil {
		return nil
	}
	if allowed := policy.Shares(c); !slices.Contains(allowed, n) {
		return j.Fail("trainer.tensor_parallel", "it is %d, which cannot share the model's %d query heads, %d key/value heads and %d columns of the MLP; allowed are %s",
			n, c.NumHeads, c.NumKVHeads, c.IntermediateSize, strings.Trim(strings.ReplaceAll(fmt.Sprint(allowed), " ", ", "), "[]"))
	}
	return nil
}

// memorySetting is what the memory of a job depends on whose trainer computes on device: cpu, cuda or cuda:N. longest is the tokens of the longest
// conversation that supervised fine-tuning learns, which rollout.max_tokens does not bound; 0: it is not known, and may be the model's context.
func memorySetting(j *job.Job, a *algorithms.Algorithm, ranks int, device string, longest int) (s memory.Setting, err error) {
	s = memory.Setting{
		BFloat16: j.Model.DType == "bfloat16", Critic: a.HasCritic(), Reference: a.NeedsReference(), Checkpoint: j.Trainer.Checkpointed(), Ranks: ranks,
		Context: j.Trainer.ContextParallel, Tensor: j.Trainer.TensorParallel, Sharding: cgo.ShardingOf(j.Trainer.Shard),
		Offload: j.Trainer.Offload == "optimizer", Shared: j.Engine.Sleep > 0,
		CUDA: device != "cpu", Threads: runtime.NumCPU(), Saves: true,
	}
	if s.Model, err = configOf(j); err != nil {
		return s, err
	}
	most := s.Model.MaxContext()
	if s.Longest = j.Rollout.MaxTokens; j.SFT != nil {
		s.Longest = cmp.Or(longest, most)
	}
	if most > 0 {
		s.Longest = min(s.Longest, most)
	}
	s.Tokens = max(j.Trainer.MicroBatchTokens, s.Longest)
	switch l := j.Model.LoRA; {
	case l.Path != "":
		c, err := policy.LookAdapter(j.Resolve(l.Path))
		if err != nil {
			return s, j.Fail("model.lora.path", "%s", job.Plain(err, "policy: "))
		}
		s.Adapter = &c
	case l.Rank > 0:
		c, err := cgo.AdapterConfig{Rank: l.Rank, Alpha: 1, Targets: l.Targets}.Resolve()
		if err != nil {
			return s, j.Fail("model.lora", "%s", job.Plain(err, "cgo: "))
		}
		s.Adapter = &c
	}
	if d := j.Distill; d != nil && d.Teacher.Path != "" {
		if s.Teacher, err = readConfig(j.ModelPath(d.Teacher.Path)); err != nil {
			return s, j.Fail("distill.teacher.path", "%v", err)
		}
	}
	if j.SFT == nil && j.Engine.Kind == "local" {
		computes, err := j.Local(device)
		if err != nil {
			return s, err
		}
		s.Engine = &memory.Engine{CacheTokens: j.Engine.Holds(), MaxSequences: j.Engine.MaxSequences, OnDevice: computes.Device != "cpu", BFloat16: computes.BFloat16, Named: j.Engine.DType != "auto"}
	}
	return s, nil
}

// configOf is the configuration of the job's model, whose folder need hold nothing else.
func configOf(j *job.Job) (*modelfile.Config, error) {
	if c := j.Model.Scratch; c != nil {
		p, err := policy.LookScratch(session.ScratchOf(c), c.Alphabet, c.ChatTemplate)
		if err != nil {
			return nil, j.Fail("model.scratch", "%v", err)
		}
		return p.Config, nil
	}
	c, err := readConfig(j.ModelPath(j.Model.Path))
	if err != nil {
		return nil, j.Fail("model.path", "%v", err)
	}
	return c, nil
}

func readConfig(path string) (*modelfile.Config, error) {
	files, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	return files.Config()
}
