package algorithms

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefusedBlocks(t *testing.T) {
	for _, c := range []struct{ block, want string }{
		{"advantage: grop", `algorithms: advantage "grop" is unknown; allowed are arpo, dr_grpo, gae, gigpo, grpo, maxrl, opo, reinforce_pp, remax, rloo, tree, turn (did you mean "grpo"?)`},
		{"advantage: {name: grpo, lambda: 0.9}", "algorithms: advantage grpo has no key lambda; its keys are: normalize_std"},
		{"advantage: {name: gae, gamma: 1.5}", "algorithms: advantage gae: gamma is 1.5; allowed is 0 to 1"},
		{"advantage: {name: gae, lambda: -1}", "algorithms: advantage gae: lambda is -1; allowed is 0 to 1"},
		{"advantage: {name: reinforce_pp, gamma: 2}", "algorithms: advantage reinforce_pp: gamma is 2; allowed is 0 to 1"},
		{"advantage: {name: reinforce_pp, group_baseline: yes please}", "algorithms: advantage reinforce_pp: group_baseline is yes please; it must be true or false"},
		{"advantage: {name: gigpo, omega: -1}", "algorithms: advantage gigpo: omega is -1; allowed is 0 or more"},
		{"advantage: {name: gigpo, normalize: std}", `algorithms: advantage gigpo: normalize is "std"; allowed are mean, mean-std`},
		{"advantage: {name: turn, mode: last}", `algorithms: advantage turn: mode is "last"; allowed are identical, first_occurrence, discounted`},
		{"advantage: {name: turn, gamma: 2}", "algorithms: advantage turn: gamma is 2; allowed is 0 to 1"},
		{"advantage: {name: arpo, mode: medium}", `algorithms: advantage arpo: mode is "medium"; allowed are hard, soft`},
		{"advantage: {name: maxrl, gamma: 1}", "algorithms: advantage maxrl has no key gamma; its keys are: none"},
		{"{advantage: gae, value: {coefficient: 0}}", "algorithms: value.coefficient is 0; it must be a positive number"},
		{"{advantage: gae, value: {clip: -0.2}}", "algorithms: value.clip is -0.2; it must be a positive number"},
		{"advantage: {name: grpo, normalise: true}", "algorithms: advantage grpo has no key normalise; its keys are: normalize_std"},
		{"advantage: {name: grpo, normalize_std: 1}", "algorithms: advantage grpo: normalize_std is 1; it must be true or false"},
		{"advantage: {name: rloo, normalize_std: true}", "algorithms: advantage rloo has no key normalize_std; its keys are: none"},
		{"{loss: gspo, aggregation: token-mean}", "algorithms: loss gspo is defined with aggregation seq-mean-token-mean only, not token-mean"},
		{"{loss: gspo, dual_clip: 3}", "algorithms: dual_clip is set, but loss gspo does not clip that way; leave it out"},
		{"loss: cispo", "algorithms: loss cispo: it needs the key bound: relative (weights up to 1 + clip_high) or absolute (up to clip_high)"},
		{"loss: {name: cispo, bound: upper}", `algorithms: loss cispo: bound is "upper"; allowed are relative, absolute`},
		{"{loss: {name: cispo, bound: relative}, clip_low: 0.2}", "algorithms: clip_low is set, but loss cispo does not clip that way; leave it out"},
		{"{loss: sapo, clip_high: 0.2}", "algorithms: clip_high is set, but loss sapo does not clip that way; leave it out"},
		{"loss: {name: sapo, tau_negative: 0}", "algorithms: loss sapo: tau_positive and tau_negative must be above 0"},
		{"{loss: dppo, clip_low: 0.2}", "algorithms: clip_low is set, but loss dppo does not clip that way; leave it out"},
		{"loss: {name: dppo, delta: 2}", "algorithms: loss dppo: delta is 2; allowed is 0 to 1"},
		{"loss: pg", `algorithms: loss "pg" is unknown; allowed are cispo, dppo, gspo, ppo_clip, reinforce, sapo`},
		{"{loss: reinforce, clip_low: 0.2}", "algorithms: clip_low is set, but loss reinforce does not clip that way; leave it out"},
		{"{loss: reinforce, dual_clip: 3}", "algorithms: dual_clip is set, but loss reinforce does not clip that way; leave it out"},
		{"dual_clip: 1", "algorithms: dual_clip is 1; allowed is 0 (off) or more than 1"},
		{"clip_low: -0.1", "algorithms: clip_low is -0.1; allowed is 0 to 1"},
		{"clip_low: 1.5", "algorithms: clip_low is 1.5; allowed is 0 to 1"},
		{"aggregation: mean", `algorithms: aggregation "mean" is unknown; allowed are token-mean, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm`},
		{"aggregation: seq-mean-token-sum-norm", "algorithms: aggregation seq-mean-token-sum-norm divides by max_tokens; set it to 1 or more (it is 0)"},
		{"max_tokens: 5", "algorithms: max_tokens is set, but aggregation token-mean does not use it; leave it out"},
		{"kl: {coefficient: -1}", "algorithms: kl.coefficient is -1; allowed is 0 or more"},
		{"kl: {coefficient: 0.1, estimator: k4}", `algorithms: kl.estimator "k4" is unknown; allowed are k1, k2, k3`},
		{"kl: {coefficient: 0.1, in: advantage}", `algorithms: kl.in is "advantage"; allowed are loss, reward`},
		{"kl: {coefficient: 0.1, estimator: k1}", "algorithms: kl: k1 in the loss has zero expected gradient on-policy, so it would do nothing; use k2 or k3, or put it in the reward"},
		{"entropy: -1", "algorithms: entropy is -1; allowed is 0 or more"},
		{"value: {clip: 0.2}", "algorithms: value is set, but advantage grpo has no critic; leave it out"},
		{"correction: {kind: tis}", `algorithms: correction "tis" is unknown; allowed are none, tis_token, tis_sequence, icepop, seq_mask, bypass`},
		{"correction: {kind: tis_sequence, high: 2}", "algorithms: correction.high is set, but correction tis_sequence does not use it (it uses: cap); leave it out"},
		{"correction: {kind: seq_mask, low: 2, high: 2}", "algorithms: correction: low 2 must be below high 2"},
		{"correction: {cap: 2}", "algorithms: correction.cap is set, but correction none does not use it (it uses: no key); leave it out"},
		{"correction: {kind: tis_token, low: 2}", "algorithms: correction.low is set, but correction tis_token does not use it (it uses: cap); leave it out"},
		{"correction: {kind: tis_token, cap: 0}", "algorithms: correction.cap is 0; it must be a positive number"},
		{"correction: {kind: icepop, low: 6}", "algorithms: correction: low 6 must be below high 5"},
		{"epochs: 0", "algorithms: epochs is 0; allowed is 1 or more"},
		{"mini_batches: -1", "algorithms: mini_batches is -1; allowed is 1 or more"},
		{"overlong: {buffer: -5, penalty: 1}", "algorithms: overlong.buffer is -5; allowed is 0 (off) or more"},
		{"overlong: {buffer: 5, penalty: -1}", "algorithms: overlong.penalty is -1; allowed is 0 or more"},
		{"overlong: {penalty: 1}", "algorithms: overlong.penalty is set, but overlong.buffer is 0, so it would never act; set the buffer or leave both out"},
		{"overlong: {buffer: 5}", "algorithms: overlong.buffer is set, but overlong.penalty is 0, so it would do nothing; set the penalty or leave both out"},
	} {
		config, err := read(c.block)
		require.NoError(t, err, c.block)
		_, err = config.Resolve(NewRegistry())
		require.EqualError(t, err, c.want, c.block)
	}
}

// Everything that is wrong with a block is told at once; what depends on a setting that is refused is not looked at.
func TestAllThatIsWrongIsTold(t *testing.T) {
	config, err := read("{advantage: grop, loss: pg, aggregation: mean, value: {clip: 0.2}, kl: {coefficient: 1, estimator: k4}, entropy: -1, epochs: 0, correction: {kind: tis_token, low: 2}}")
	require.NoError(t, err)
	_, err = config.Resolve(NewRegistry())
	var refused Refused
	require.ErrorAs(t, err, &refused)
	var keys []string
	for _, s := range refused {
		keys = append(keys, s.Key)
	}
	require.Equal(t, []string{"advantage", "loss", "kl.estimator", "entropy", "epochs", "correction.low"}, keys)
	require.Regexp(t, `^algorithms: advantage "grop" is unknown; .*; loss "pg" is unknown; .*; entropy is -1; allowed is 0 or more; epochs is 0; `, err.Error())
}

// JSON has neither, but a job file and a program's own Config may.
func TestNaNAndInfinityAreRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for want, c := range map[string]Config{
		"algorithms: advantage gae: gamma is NaN; it must be a number":    {Advantage: Choice{Name: "gae", Keys: map[string]any{"gamma": nan}}},
		"algorithms: dual_clip is NaN; allowed is 0 (off) or more than 1": {DualClip: &nan},
		"algorithms: clip_high is +Inf; allowed is 0 or more":             {ClipHigh: &inf},
	} {
		_, err := c.Resolve(NewRegistry())
		require.EqualError(t, err, want)
	}
}

func TestUnreadableBlocks(t *testing.T) {
	for _, block := range []string{"clip: 1", "advantage: [grpo]", "advantage: {gamma: 1}", "epochs: many", "- 1"} {
		_, err := read(block)
		require.Error(t, err, block)
	}
	for _, block := range []string{`{"clip": 1}`, `{"advantage": 3}`, `{} {}`, ``, `[]`} {
		_, err := ParseJSON([]byte(block))
		require.Error(t, err, block)
	}
}

func TestConfigRoundTrip(t *testing.T) {
	block := `{"advantage": {"name": "grpo", "normalize_std": false}, "loss": "ppo_clip", "clip_high": 0.28, "dual_clip": 3,
		"aggregation": "seq-mean-token-sum-norm", "max_tokens": 64, "kl": {"coefficient": 0.1}, "epochs": 2}`
	config, err := ParseJSON([]byte(block))
	require.NoError(t, err)
	a, err := config.Resolve(NewRegistry())
	require.NoError(t, err)
	require.Equal(t, []float64{0.2, 0.28, 3}, []float64{a.Loss.Settings.ClipLow, a.Loss.Settings.ClipHigh, a.Loss.Settings.DualClip})
	require.False(t, a.Estimator.Settings.Bool("normalize_std"))
	require.False(t, a.OldIsCurrent())

	text, err := json.Marshal(config)
	require.NoError(t, err)
	again, err := ParseJSON(text)
	require.NoError(t, err)
	require.Equal(t, config, again)
}

func TestDescribe(t *testing.T) {
	require.Equal(t, `advantage    dr_grpo: A = r - mean over the group (its paper's loss denominator is aggregation seq-mean-token-sum-norm, set separately) [arXiv 2503.20783]
             exactly 0 for a group whose rewards are all equal, and for a group of one; failed trajectories are left out of the group
loss         ppo_clip: loss_t = -min(ρA, clip(ρ, 1 - clip_low, 1 + clip_high)A), ρ = exp(current - old); dual_clip c: for A < 0 min(that, -cA) [arXiv 1707.06347; asymmetric: arXiv 2503.14476; dual clip: arXiv 1912.09729]
clip         ratio in [0.8, 1.2]
             dual clip off
             clipping never acts: each batch gets one update, so every ratio is 1
aggregation  token-mean: loss = Σ loss / N, N all loss-mask tokens of the mini-batch, over micro-batches and ranks
kl           none; no reference policy is needed
entropy      no bonus
correction   none
updates      1 optimizer step a batch; old = current without gradient, so no forward of its own
`, resolve(t, "{advantage: dr_grpo, loss: ppo_clip, aggregation: token-mean}").Describe())

	text := resolve(t, `{advantage: grpo, clip_high: 0.28, dual_clip: 3, epochs: 2, mini_batches: 4, entropy: 0.01,
		aggregation: seq-mean-token-sum-norm, max_tokens: 64, kl: {coefficient: 0.1}, correction: {kind: tis_token}}`).Describe()
	require.Contains(t, text, "; normalize_std = true\n")
	require.Contains(t, text, "ratio in [0.8, 1.28]\n             dual clip: for A < 0 the loss is at most -3A\naggregation")
	require.Contains(t, text, "Σ_i Σ_t loss_it / (B * 64)")
	require.Contains(t, text, "0.1 * k3 against the frozen reference, in the loss")
	require.Contains(t, text, "loss_t - 0.01 * H_t")
	require.Contains(t, text, "min(exp(old - sampling), 2)")
	require.Contains(t, text, "8 optimizer steps a batch (2 epochs of 4 mini-batches); old is computed once before the first")
	require.NotContains(t, text, "never acts")
	require.Contains(t, resolve(t, "loss: reinforce").Describe(), "clip         this loss does not clip\n")
}

func TestDescribeEveryPart(t *testing.T) {
	text := resolve(t, "{advantage: {name: gae, gamma: 0.99}, value: {clip: 0.1}, kl: {coefficient: 0.2, estimator: k1, in: reward}, correction: {kind: seq_mask, low: 0.9, high: 1.1}, overlong: {buffer: 32, penalty: 0.5}, dynamic_sampling: true}").Describe()
	require.Contains(t, text, "; gamma = 0.99; lambda = 0.95\n")
	require.Contains(t, text, "the value of the state after it where it was truncated")
	require.Contains(t, text, "value        0.5 * ½ max((V - R)², (V_old + clip(V - V_old, ±0.1) - R)²), R = Â + V_old, mean over all loss-mask tokens of the mini-batch (its own token-mean)\n")
	require.Contains(t, text, "kl           0.2 * k1 against the frozen reference, in the reward\n             k1 = x - reference, x = old; summed over the trajectory and subtracted from its reward before the estimator\n")
	require.Contains(t, text, "correction   seq_mask: a trajectory whose exp(mean_t(old - sampling)) lies outside [0.9, 1.1] gets policy term 0; in others a token's is multiplied by min(exp(old - sampling), 2), without gradient; the denominator stays\n")
	require.Contains(t, text, "overlong     reward - 0.5 * how much of the last 32 tokens before the limit is used, 0 to 1\n")
	require.Contains(t, text, "sampling     dynamic: groups whose rewards are all equal are dropped and the batch is refilled\n")
	require.NotContains(t, resolve(t, "{}").Describe(), "\nvalue ")

	for block, want := range map[string]string{
		"loss: gspo":                           "clip         the trajectory's ratio s in [0.9997, 1.0004]\n             clipping never acts: each batch gets one update, so every ratio is 1\naggregation  seq-mean-token-mean:",
		"{loss: gspo, epochs: 2}":              "clip         the trajectory's ratio s in [0.9997, 1.0004]\naggregation",
		"loss: {name: cispo, bound: relative}": "; bound = relative\nclip         the weight sg[ρ] in [0, 1.2]; a token's gradient is bounded, never dropped\n             clipping never acts",
		"{loss: {name: cispo, bound: absolute}, clip_high: 5, epochs: 2}": "clip         the weight sg[ρ] in [0, 5]; a token's gradient is bounded, never dropped\naggregation",
		"loss: {name: cispo, bound: absolute}":                            "[0, 0.2]; a token's gradient is bounded, never dropped\n             a limit below 1 scales every gradient: a token whose policy has not changed has the weight 0.2, not 1\naggregation",
		"{loss: reinforce, correction: {kind: bypass}}":                   "correction   bypass: the sampling logprobs take the place of old\n             loss reinforce does not read old: nothing is corrected\nupdates",
		"loss: sapo":                                "; tau_positive = 1; tau_negative = 1.05\nclip         none; a soft gate, the sigmoid, in its place\n",
		"loss: dppo":                                "clip         no bound on the ratio; a token whose probability has moved by more than 0.2 in the direction of its advantage is dropped and still counted in the denominator\n",
		"correction: {kind: tis_sequence}":          "correction   tis_sequence: the policy terms of a trajectory are multiplied by min(exp(Σ_t(old - sampling)), 5), without gradient\n",
		"kl: {coefficient: 1, estimator: k2}":       "k2 = (x - reference)²/2, x = current; added per token with the aggregation's weights\n",
		"advantage: remax":                          "one greedy rollout more per group, which is not trained on; where it failed, its group is left out\n",
		"advantage: {name: gigpo, normalize: mean}": "; omega = 1; gamma = 0.95; normalize = mean\n",
	} {
		require.Contains(t, resolve(t, block).Describe(), want, block)
	}
}

func TestRegistryRefusesTakenNames(t *testing.T) {
	r := NewRegistry()
	estimator := func(Settings) (Estimator, error) { return perTrajectory(centred), nil }
	loss := func(Settings) (Loss, error) { return nil, nil }
	require.NoError(t, r.AddEstimator(EstimatorSpec{Name: "mine", New: estimator, Keys: []Key{{"strength", nil, "how much"}}}))
	require.Error(t, r.AddEstimator(EstimatorSpec{Name: "mine", New: estimator}))
	require.Error(t, r.AddEstimator(EstimatorSpec{Name: "gae", New: estimator}))
	require.NoError(t, r.AddEstimator(EstimatorSpec{Name: "halfway", New: estimator, Needs: Needs{Values: true}}))
	_, err := Config{Advantage: Choice{Name: "halfway"}}.Resolve(r)
	require.EqualError(t, err, "algorithms: advantage halfway: an estimator reads values if and only if it is a Critic")
	require.Error(t, r.AddLoss(LossSpec{Name: "ppo_clip", New: loss}))
	require.Error(t, r.AddLoss(LossSpec{Name: "gspo", New: loss}))
	require.Error(t, r.AddLoss(LossSpec{Name: "own"}))
	require.NoError(t, r.AddLoss(LossSpec{Name: "own", New: loss}))

	_, err = Config{Advantage: Choice{Name: "mine"}}.Resolve(r)
	require.EqualError(t, err, "algorithms: advantage mine needs the key strength (how much)")
	a, err := Config{Advantage: Choice{Name: "mine", Keys: map[string]any{"strength": 2}}, Loss: Choice{Name: "own"}}.Resolve(r)
	require.NoError(t, err)
	require.Equal(t, 2.0, a.Estimator.Settings.Float("strength"))
}

func FuzzBlock(f *testing.F) {
	for _, seed := range []string{"{}", "advantage: {name: grpo, normalize_std: false}", "loss: 3", "kl: {in: reward}", "{advantage: {name: gae, lambda: 0.9}, loss: {name: cispo, bound: absolute}}", "loss: gspo", "overlong: {buffer: 3, penalty: 1}", "advantage: {name: {a: b}}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		c, err := read(string(block))
		if err != nil {
			return
		}
		if a, err := c.Resolve(NewRegistry()); err == nil {
			require.NotEmpty(t, a.Describe())
		}
	})
}
