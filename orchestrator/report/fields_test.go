package report

import (
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill gives every number of a struct a value, and every group and open set of keys something; some of them only, where rng is not nil.
func fill(v reflect.Value, next *int, rng *rand.Rand) {
	*next++
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next, rng)
		}
	case (v.Kind() == reflect.Pointer || v.Kind() == reflect.Map) && rng != nil && rng.IntN(2) == 0:
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next, rng)
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, name := range []string{"one", "another/of_two"} {
			e := reflect.New(v.Type().Elem()).Elem()
			fill(e, next, nil)
			v.SetMapIndex(reflect.ValueOf(name), e)
		}
	default:
		setNumber(v, float64(*next))
	}
}

// These are the keys that runs recorded before there was a type: dashboards and older run folders know them.
func TestKeysOfAStep(t *testing.T) {
	var s Step
	fill(reflect.ValueOf(&s).Elem(), new(int), nil)
	var got []string
	for key := range s.Map() {
		if !strings.HasSuffix(key, "/another/of_two") {
			got = append(got, key)
		}
	}
	require.ElementsMatch(t, strings.Fields(`
		reward/mean reward/one greedy/reward greedy/failed
		trajectories/finished trajectories/failed trajectories/running trajectories/cut trajectories/empty trajectories/filtered errors/one stop/one
		groups/flat groups/sampled groups/dropped groups/refills groups/too_stale
		environments/in_use environments/waiting environments/leases environments/wait_p50 environments/wait_p99 environments/failures environments/replaced
		environments/resets environments/reset_p50 environments/reset_p99 environments/steps environments/step_p50 environments/step_p99
		turns turns/cut tools/calls tools/failed tools/parse_errors tools/unknown tools/bad_arguments tools/broken tools/retries tools/cached seconds/tools
		tokens/sampled tokens/cached tokens/sample_per_second tokens/packed tokens/unpacked tokens/train_per_second tokens/learned
		length/response_mean length/trained_mean length/trained_p50 length/trained_p90 length/trained_max
		length/cut_mean length/cut_p50 length/cut_p90 length/cut_max length/dropped_mean length/dropped_p50 length/dropped_p90 length/dropped_max
		update/loss update/grad_norm update/learning_rate update/entropy update/policy_version update/skipped
		update/clip_fraction update/dropped update/kl update/value_loss update/explained
		update/mismatch_mean update/mismatch_max update/mismatch_k3 update/ess update/staleness_mean update/staleness_max
		seconds/sample seconds/wait seconds/sync seconds/train seconds/step seconds/elapsed
		sft/loss sft/epoch sft/conversations distill/reverse_kl`), got)
}

// A step that is read back is the step that was written, whatever groups it has.
func TestAStepComesBackFromItsMap(t *testing.T) {
	for seed := range uint64(200) {
		var s Step
		fill(reflect.ValueOf(&s).Elem(), new(int), rand.New(rand.NewPCG(seed, 0)))
		require.Equal(t, s, FromMap(s.Map()))
	}
	s := FromMap(map[string]float64{"reward/mean": 0.5, "update/loss": math.Inf(1), "unheard/of": 3})
	require.Equal(t, Step{Rollouts: &Rollouts{Reward: Reward{Mean: new(0.5)}}, Update: Update{Loss: math.Inf(1)}}, s, "of an older program, or a newer one")
	m := map[string]float64{"stop/answer": 1}
	FromMap(m)
	require.Len(t, m, 1, "the map is the caller's")
}

// What a step has not has no key.
func TestKeysThatAStepLacks(t *testing.T) {
	require.ElementsMatch(t, strings.Fields(`sft/loss sft/epoch sft/conversations tokens/learned tokens/packed tokens/unpacked tokens/train_per_second
		seconds/train seconds/step seconds/elapsed update/loss update/grad_norm update/learning_rate update/entropy update/policy_version`),
		slices.Collect(maps.Keys(Step{SFT: &SFT{}}.Map())))
	none := Step{Rollouts: &Rollouts{Trajectories: Trajectories{Errors: map[string]int{"engine": 0}}}}.Map()
	require.Contains(t, none, "errors/engine")
	require.Contains(t, none, "trajectories/failed")
	for _, key := range []string{"turns", "tools/calls", "length/response_mean", "length/trained_mean", "trajectories/filtered", "greedy/reward", "update/skipped", "distill/reverse_kl", "sft/loss"} {
		require.NotContains(t, none, key)
	}
	whole := Step{Rollouts: &Rollouts{Turns: &Turns{Turns: 1}, Trajectories: Trajectories{Filtered: new(int)}}, Update: Update{Skipped: 1}}.Map()
	require.NotContains(t, whole, "turns/cut")
	for _, key := range []string{"turns", "tools/broken", "seconds/tools", "trajectories/filtered", "update/skipped"} {
		require.Contains(t, whole, key)
	}
}

// A field without a key would clash with others, and one without a text would stand on the page as a name.
func TestEveryNumberIsExplained(t *testing.T) {
	keys := map[string]bool{}
	var check func(typ reflect.Type, prefix string)
	check = func(typ reflect.Type, prefix string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			key, _ := metricOf(f, prefix)
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				check(inner, key)
				continue
			}
			require.NotEmpty(t, key, f.Name)
			require.False(t, keys[key], "%s is the key of two fields", key)
			keys[key] = true
			require.NotEmpty(t, f.Tag.Get("doc"), key)
			require.NotEmpty(t, f.Tag.Get("unit"), key)
		}
	}
	check(reflect.TypeFor[Step](), "")
	require.Greater(t, len(keys), 60)
	for _, typ := range []reflect.Type{reflect.TypeFor[Evaluation](), reflect.TypeFor[Summary]()} {
		for i := range typ.NumField() {
			if typ.Field(i).IsExported() { // others are not written
				require.NotEmpty(t, typ.Field(i).Tag.Get("doc"), "%s.%s", typ.Name(), typ.Field(i).Name)
			}
		}
	}
}
