package orchestrator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trainer/memory"
)

func memoryRegistries() Registries {
	return Registries{Tools: tools.NewCatalog(), Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry()}
}

// configured is a folder with the config.json of a model of so many layers, and nothing else.
func configured(t *testing.T, layers int) string {
	dir := t.TempDir()
	text := fmt.Sprintf(`{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
		"num_hidden_layers": %d, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
		"rms_norm_eps": 1e-06, "hidden_act": "silu", "tie_word_embeddings": false, "use_sliding_window": false}`, layers)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600))
	return dir
}

func TestMemoryIsPlannedForACardThatIsNotHere(t *testing.T) {
	j, err := job.Load("../examples/tiny.yaml", "model.path="+configured(t, 28), "model.dtype=bfloat16", "device=cpu")
	require.NoError(t, err)
	m, err := PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: 140e9})
	require.NoError(t, err)
	require.Equal(t, "device", m.Places[0].Place)
	require.Equal(t, "perhaps", m.Places[0].Fits)
	require.Equal(t, "model.lora.rank=16", m.Places[0].Remedies[0].Change)
	require.Equal(t, int64(18*7_615_616_512), m.Places[0].Need.Exact)
	m, err = PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: 130e9})
	require.NoError(t, err)
	require.Equal(t, "no", m.Places[0].Fits)

	// Full fine-tuning of 7B on one card of 140 GB.
	j, err = job.Load("../examples/tiny.yaml", "model.path="+configured(t, 28), "model.dtype=bfloat16", "device=cpu", "trainer.offload=optimizer")
	require.NoError(t, err)
	m, err = PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: 140e9})
	require.NoError(t, err)
	require.Equal(t, "yes", m.Places[0].Fits)
	require.Greater(t, m.Places[1].Need.Exact, int64(8*7_615_616_512), "the moments lie on the host")

	j, err = job.Load("../examples/tiny.yaml", "model.path="+configured(t, 28), "model.dtype=bfloat16", "model.lora.rank=16")
	require.NoError(t, err)
	m, err = PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: 140e9})
	require.NoError(t, err)
	require.Equal(t, "yes", m.Places[0].Fits)
	m, err = PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: m.Places[0].Need.Exact + 1})
	require.NoError(t, err)
	require.Equal(t, "perhaps", m.Places[0].Fits)
}

// The local engine's memory is planned where it computes: on a card, unless the job keeps it on the CPUs. A rank's device has a number.
func TestTheEngineIsPlannedWhereItComputes(t *testing.T) {
	places := func(device string, sets ...string) map[string]string {
		j, err := job.Load("../examples/tiny.yaml", append(sets, "model.path="+configured(t, 28), "device=cpu")...)
		require.NoError(t, err)
		a, err := job.Algorithm(j, algorithms.NewRegistry())
		require.NoError(t, err)
		s, err := memorySetting(j, a, 2, device, 0)
		require.NoError(t, err)
		require.Equal(t, device != "cpu", s.CUDA)
		found := map[string]string{}
		for _, p := range memory.Of(s).Parts {
			found[p.Name] = p.Place
		}
		return found
	}
	for _, device := range []string{"cuda", "cuda:0"} {
		on := places(device, "deterministic=false")
		require.Equal(t, memory.Device, on["engine: keys, values"])
		require.NotContains(t, on, "engine: copy")
		for _, sets := range [][]string{nil, {"deterministic=false", "engine.device=cpu"}} {
			beside := places(device, sets...)
			require.Equal(t, memory.Host, beside["engine: keys, values"], sets)
			require.Equal(t, memory.Host, beside["engine: copy"], sets)
		}
	}
	require.Equal(t, "cuda:0", policy.DeviceOf("cuda:0"), "as processes.Of names a rank's")
	require.Equal(t, memory.Host, places("cpu", "deterministic=false")["engine: keys, values"])

	j, err := job.Load("../examples/tiny.yaml", "model.path="+configured(t, 28), "device=cpu", "deterministic=false", "engine.dtype=bfloat16")
	require.NoError(t, err)
	_, err = PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: 140e9})
	require.ErrorContains(t, err, "engine.dtype: bfloat16, but on cuda the local engine reads")
}

// A job takes each remedy that it is advised. On a device the local engine computes in the trainer's type, so one that names it takes the other
// together with the trainer.
func TestAJobTakesItsRemedies(t *testing.T) {
	for _, engine := range []string{"engine.dtype=auto", "engine.dtype=float32", "engine.cache_tokens=100"} {
		sets := []string{"model.path=" + configured(t, 28), "device=cpu", "deterministic=false", "trainer.micro_batch_tokens=32768", engine}
		plan := func(more ...string) Memory {
			j, err := job.Load("../examples/tiny.yaml", append(sets[:len(sets):len(sets)], more...)...)
			require.NoError(t, err)
			m, err := PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: 100e9})
			require.NoError(t, err, more)
			return m
		}
		rounded := 0
		for _, r := range plan().Places[0].Remedies {
			if strings.HasPrefix(r.Change, "--") {
				continue
			}
			require.Equal(t, r.After, plan(strings.Split(r.Change, ", ")...).Places[0].Need, r.Change)
			if strings.HasPrefix(r.Change, "model.dtype=bfloat16") {
				rounded++
			}
		}
		require.Equal(t, 1, rounded)
	}
}

// A job that computes more layers again than it must is told how few fit.
func TestFewerCheckpointedLayersAreNoted(t *testing.T) {
	notes := func(device int64, set ...string) string {
		j, err := job.Load("../examples/tiny.yaml", append(set, "model.path="+configured(t, 28), "model.dtype=bfloat16", "trainer.micro_batch_tokens=8192")...)
		require.NoError(t, err)
		m, err := PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{Device: device})
		require.NoError(t, err)
		require.Equal(t, "yes", m.Places[0].Fits)
		return strings.Join(m.Notes, "\n")
	}
	require.Contains(t, notes(150e9, "trainer.checkpointing=true"), "it fits with trainer.checkpoint_layers=22 too: 6 of 28 layers are then computed once")
	require.NotContains(t, notes(150e9, "trainer.checkpointing=true", "trainer.checkpoint_layers=22"), "checkpoint_layers")
	require.Contains(t, notes(300e9, "trainer.checkpointing=true"), "it fits without trainer.checkpointing, which computes layers twice")
	require.NotContains(t, notes(300e9), "checkpointing")
}

// What cannot fit is refused before its weights are read, by validate and by train; what may not fit is a note.
func TestAJobThatCannotFitIsRefused(t *testing.T) {
	const refused = "GB of host memory before a token is computed, and this machine"
	load := func(layers int, sets ...string) (*job.Job, string) {
		j, err := job.Load("../examples/tiny.yaml", append([]string{"model.path=" + configured(t, layers), "device=cpu"}, sets...)...)
		require.NoError(t, err)
		a, err := job.Algorithm(j, algorithms.NewRegistry())
		require.NoError(t, err)
		said := ""
		err = room(t.Context(), j, a, 1, 0, 0, func(text string) { said += text })
		if err != nil {
			said = err.Error()
		}
		return j, said
	}
	j, said := load(400) // 380 GB of weights
	require.Contains(t, said, refused)
	require.Contains(t, said, "by model.lora.rank=16")
	require.NotContains(t, said, "\n")
	_, err := Look(t.Context(), j, memoryRegistries(), Examine{})
	require.ErrorContains(t, err, refused)
	_, err = Look(t.Context(), j, memoryRegistries(), Examine{For: "eval"})
	require.NotContains(t, err.Error(), refused, "nothing is trained")
	_, said = load(1, "trainer.micro_batch_tokens=100000000")
	require.Contains(t, said, "training may need up to")
	require.NotContains(t, said, refused)

	j, err = job.Load("../examples/tiny.yaml", "device=cpu")
	require.NoError(t, err)
	seen, _ := Look(t.Context(), j, memoryRegistries(), Examine{}) // the registries have no tools, which is refused
	require.NotContains(t, fmt.Sprint(seen.Notes), "memory")
}

// Layers that cannot be shared by as many processes as a job says are refused by validate, and in a plan of its memory.
func TestLayersThatCannotBeSharedAreRefused(t *testing.T) {
	const refused = "trainer.tensor_parallel: it is 3, which cannot share the model's 28 query heads, 4 key/value heads and 18944 columns of the MLP; allowed are 1, 2, 4"
	load := func(n int) *job.Job {
		j, err := job.Load("../examples/tiny.yaml", "model.path="+configured(t, 1), "device=cpu", fmt.Sprintf("trainer.tensor_parallel=%d", n))
		require.NoError(t, err)
		return j
	}
	_, err := Look(t.Context(), load(3), memoryRegistries(), Examine{})
	require.ErrorContains(t, err, refused)
	_, err = PlanMemory(t.Context(), load(3), memoryRegistries(), MemoryOptions{Ranks: 3})
	require.ErrorContains(t, err, refused)
	_, err = PlanMemory(t.Context(), load(2), memoryRegistries(), MemoryOptions{Ranks: 3})
	require.ErrorContains(t, err, "trainer.tensor_parallel: it is 2, which does not divide the number of training processes, 3")
	most := func(n int) int64 {
		m, err := PlanMemory(t.Context(), load(n), memoryRegistries(), MemoryOptions{Ranks: 4})
		require.NoError(t, err)
		return m.Places[0].Need.Most
	}
	require.Less(t, most(4), most(1))
}

// What supervised fine-tuning learns may be longer than rollout.max_tokens, which it does not read: the bound is that of the longest conversation, or where
// nobody can lay them out of the model's context.
func TestTheMemoryOfFineTuningFollowsFromItsLongestConversation(t *testing.T) {
	most := func(sets ...string) int64 {
		j, err := job.Load("../examples/tiny_sft.yaml", append([]string{"device=cpu", "agent={}", "trainer.micro_batch_tokens=64"}, sets...)...)
		require.NoError(t, err)
		m, err := PlanMemory(t.Context(), j, memoryRegistries(), MemoryOptions{})
		require.NoError(t, err)
		return m.Places[0].Need.Most
	}
	said := func(letters int) string { // as many tokens in the tiny model
		path := filepath.Join(t.TempDir(), "c.jsonl")
		line := fmt.Sprintf(`{"messages": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": %q}]}`, strings.Repeat("2", letters))
		require.NoError(t, os.WriteFile(path, []byte(line), 0o600))
		return "data.train=" + path
	}
	require.Greater(t, most(said(200)), most(said(60)))
	require.Equal(t, most(said(60)), most(said(60), "rollout.max_tokens=16", "rollout.max_new_tokens=8"))
	require.Greater(t, most("data.train=nowhere.jsonl"), most(said(200)), "it may be anything that the model takes")
	require.Equal(t, most("data.train=nowhere.jsonl", "model.path="+configured(t, 1), "model.scratch=null"), most("data.train=nowhere.jsonl", "model.path="+configured(t, 1), "model.scratch=null", "trainer.micro_batch_tokens=32768"))
}
