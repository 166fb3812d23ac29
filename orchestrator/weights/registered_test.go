package weights

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
)

// lesser is a registered engine with the capabilities of a test.
type lesser struct {
	*scripted.Engine
	c       engines.Capabilities
	updates *[]engines.Weights
}

func (e lesser) Capabilities() engines.Capabilities { return e.c }

func (e lesser) Update(ctx context.Context, w engines.Weights) error {
	*e.updates = append(*e.updates, w)
	return e.Engine.Update(ctx, w)
}

// sleeper is one that can sleep.
type sleeper struct{ lesser }

func (sleeper) Sleep(context.Context) error { return nil }

func registered(t *testing.T, c engines.Capabilities, sets ...string) (*Sync, engines.Setup, *[]engines.Weights, *[]string, error) {
	return registeredAs(t, false, c, sets...)
}

// registeredAs is examples/tiny.yaml with an engine of kind mine, which has the capabilities c, opened as far as that goes without libtorch.
func registeredAs(t *testing.T, sleeps bool, c engines.Capabilities, sets ...string) (s *Sync, got engines.Setup, updates *[]engines.Weights, notes *[]string, err error) {
	j, err := job.Load("../../examples/tiny.yaml", append([]string{"engine={kind: mine, params: {speed: 3}}"}, sets...)...)
	require.NoError(t, err)
	tok, err := tokenizer.Load("../../examples/tiny/model")
	require.NoError(t, err)
	p := &policy.Policy{Text: &policy.Text{Tokenizer: tok}, Config: &modelfile.Config{VocabSize: 22, MaxPositionEmbeddings: 64}}
	updates, notes = &[]engines.Weights{}, &[]string{}
	r := engines.NewRegistry()
	require.NoError(t, r.Add("mine", "", func(_ context.Context, x engines.Setup) (engines.Engine, error) {
		got = x
		x.Note("it is there")
		e := lesser{scripted.New(scripted.Options{}), c, updates}
		if sleeps {
			return sleeper{e}, nil
		}
		return e, nil
	}))
	s = &Sync{}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Check(j, r))
	err = s.Open(t.Context(), Config{Job: j, Policy: p, Note: func(text string) { *notes = append(*notes, text) }})
	return s, got, updates, notes, err
}

func TestARegisteredEngineIsOpened(t *testing.T) {
	folder := t.TempDir()
	s, got, updates, notes, err := registered(t, engines.Capabilities{TokenIDs: true, WeightUpdates: true, SharedParameters: true, MaxModelLen: 64}, "engine.folder="+folder)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"speed": int64(3)}, got.Params)
	require.Equal(t, "../../examples/x", got.Resolve("x"))
	require.Equal(t, "2+3", got.Decode(got.Encode("2+3")))
	require.Equal(t, 64, got.MaxContext)
	require.Equal(t, 22, got.Vocabulary)
	require.DirExists(t, got.Folder)
	require.Contains(t, got.Folder, folder)
	require.Equal(t, []string{"engine mine: it is there"}, *notes)
	require.NoError(t, s.Trainable())

	require.NoError(t, s.Begin(t.Context(), 3))
	require.Equal(t, int32(3), (*updates)[0].Version)
	version := int32(3)
	written := false
	require.NoError(t, s.Barrier(&version)(t.Context(), func(context.Context) error { written = true; return nil }))
	require.True(t, written)
	require.Equal(t, int32(4), version)
	require.Equal(t, int32(4), (*updates)[1].Version)
	require.NoError(t, s.Close())
	require.NoDirExists(t, got.Folder)
	_, err = s.Engine().Generate(t.Context(), engines.Request{Prompt: []int32{1}, Sampling: engines.Sampling{MaxTokens: 1, TopP: 1}})
	require.ErrorIs(t, err, engines.ErrClosed)
}

// What an engine lacks is said where the job needs it.
func TestWhatARegisteredEngineLacks(t *testing.T) {
	s, _, updates, notes, err := registered(t, engines.Capabilities{TokenIDs: true, MaxModelLen: 64})
	require.NoError(t, err)
	require.Contains(t, (*notes)[1], "engine mine: it takes no weights (no capability WeightUpdates)")
	require.NoError(t, s.Begin(t.Context(), 0))
	require.Empty(t, *updates, "they are not its weights")
	require.ErrorContains(t, s.Trainable(), "engine.kind: mine: training needs an engine that takes each step's weights, and this one takes none (no capability WeightUpdates); use it for rollout and eval, and local or vllm to train")

	s, _, _, _, err = registered(t, engines.Capabilities{WeightUpdates: true, MaxModelLen: 64})
	require.NoError(t, err)
	require.ErrorContains(t, s.Trainable(), "engine.kind: mine: training needs the token ids and logprobs that were sampled, and the engine returns text (no capability TokenIDs)")

	_, _, _, _, err = registered(t, engines.Capabilities{TokenIDs: true})
	require.ErrorContains(t, err, "engine.kind: mine: its Capabilities say that it takes 0 tokens (MaxModelLen)")
	_, _, _, _, err = registered(t, engines.Capabilities{TokenIDs: true, MaxModelLen: 64}, "engine.sleep=1")
	require.ErrorContains(t, err, "engine.sleep: 1: an engine of kind mine cannot sleep (it is no engines.Sleeper); leave it out")
	_, _, _, _, err = registeredAs(t, true, engines.Capabilities{TokenIDs: true, WeightUpdates: true, MaxModelLen: 64}, "engine.sleep=1")
	require.NoError(t, err)
	_, _, _, _, err = registeredAs(t, true, engines.Capabilities{TokenIDs: true, WeightUpdates: true, SharedParameters: true, MaxModelLen: 64}, "engine.sleep=1")
	require.ErrorContains(t, err, "engine.sleep: 1: an engine of kind mine shares the trainer's parameters, so it cannot sleep while they are written; leave it out")
	require.NoError(t, (&Sync{}).Trainable(), "supervised fine-tuning has no engine")
}

func TestAKindOfEngineThatNobodyKnows(t *testing.T) {
	j, err := job.Load("../../examples/tiny.yaml", "engine={kind: mien}")
	require.NoError(t, err)
	r := engines.NewRegistry()
	require.NoError(t, r.Add("mine", "", func(context.Context, engines.Setup) (engines.Engine, error) { return nil, nil }))
	require.ErrorContains(t, (&Sync{}).Check(j, r), `--set engine={kind: mien}: engine.kind: unknown kind "mien", known are local, mine, openai, vllm; nearest: mine`)
	require.ErrorContains(t, (&Sync{}).Check(j, nil), `engine.kind: unknown kind "mien", known are local, openai, vllm`)
}
