package job

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
)

const writeAnew = "write it anew: go run ./scripts/job_reference >docs/job-reference.md"

func TestReferenceIsTheTypes(t *testing.T) {
	want, err := Reference()
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/job-reference.md")
	require.NoError(t, err)
	got, lines := strings.Split(string(page), "\n"), strings.Split(want, "\n")
	for i := range min(len(got), len(lines)) {
		require.Equal(t, lines[i], got[i], "line %d of docs/job-reference.md is stale; %s", i+1, writeAnew)
	}
	require.Len(t, got, len(lines), "docs/job-reference.md is stale; %s", writeAnew)
}

// Every setting has a row that says what it means, and every default is one that the loader gives.
func TestReferenceSaysEverything(t *testing.T) {
	page, err := Reference()
	require.NoError(t, err)
	for _, row := range strings.Split(page, "\n") {
		if strings.HasPrefix(row, "| `") {
			cells := strings.Split(strings.ReplaceAll(row, `\|`, ""), " | ")
			require.Len(t, cells, 5, row)
			require.NotEmpty(t, strings.Trim(cells[4], "| "), row)
		}
	}
	for _, row := range []string{
		"| `group_size` | whole number | `8` | 1 to 100000 (trajectories) |",
		"| `cut` | text | `score` | score, zero, filter, parse |",
		"| `learning_rate` | number | `1e-06` | above 0 up to 1 |",
		"| `advantage` | name or mapping | `grpo` |",
		"| `path` | text | `null` |",
		"| `version` | whole number | required | 1 |",
		"| `report` | list of names or mappings | `null` |",
		"| `roles` | list of mappings | `null` |",
		"| `columns` | mapping of texts | `null` |",
	} {
		require.Contains(t, page, row)
	}
	require.NotContains(t, page, "| list of s |")
	require.Equal(t, 2, strings.Count(page, "| `params` | mapping of parameters |"), "of an engine and of an environment")
}

// The tag range of the block algorithm is what Resolve accepts.
func TestReferenceRangesOfAlgorithm(t *testing.T) {
	resolve := func(c algorithms.Config) error {
		_, err := c.Resolve(algorithms.NewRegistry())
		return err
	}
	number := func(v float64) *float64 { return &v }
	whole := func(v int) *int { return &v }
	gae := algorithms.Choice{Name: "gae"}
	of := func(kind string, set func(c *algorithms.Correction)) algorithms.Config {
		c := algorithms.Correction{Kind: kind}
		set(&c)
		return algorithms.Config{Correction: c}
	}
	for name, c := range map[string]struct{ good, bad []algorithms.Config }{
		"clip_low":       {[]algorithms.Config{{ClipLow: number(0)}, {ClipLow: number(1)}}, []algorithms.Config{{ClipLow: number(-0.1)}, {ClipLow: number(1.1)}}},
		"clip_high":      {[]algorithms.Config{{ClipHigh: number(0)}, {ClipHigh: number(9)}}, []algorithms.Config{{ClipHigh: number(-0.1)}}},
		"dual_clip":      {[]algorithms.Config{{DualClip: number(0)}, {DualClip: number(3)}}, []algorithms.Config{{DualClip: number(1)}}},
		"entropy":        {[]algorithms.Config{{Entropy: 0}, {Entropy: 1}}, []algorithms.Config{{Entropy: -1}}},
		"epochs":         {[]algorithms.Config{{Epochs: whole(1)}}, []algorithms.Config{{Epochs: whole(0)}}},
		"mini_batches":   {[]algorithms.Config{{MiniBatches: whole(1)}}, []algorithms.Config{{MiniBatches: whole(0)}}},
		"kl.coefficient": {[]algorithms.Config{{KL: algorithms.KL{Coefficient: 1}}}, []algorithms.Config{{KL: algorithms.KL{Coefficient: -1}}}},
		"value": {
			[]algorithms.Config{{Advantage: gae, Value: &algorithms.Value{Coefficient: number(0.1), Clip: number(0.1)}}},
			[]algorithms.Config{{Advantage: gae, Value: &algorithms.Value{Coefficient: number(0)}}, {Advantage: gae, Value: &algorithms.Value{Clip: number(0)}}, {Value: &algorithms.Value{Clip: number(1)}}},
		},
		"correction": {
			[]algorithms.Config{of("seq_mask", func(c *algorithms.Correction) { c.Low, c.High, c.Cap = number(0), number(1), number(0.1) })},
			[]algorithms.Config{of("seq_mask", func(c *algorithms.Correction) { c.Cap = number(0) }), of("icepop", func(c *algorithms.Correction) { c.Low, c.High = number(2), number(1) })},
		},
	} {
		for _, good := range c.good {
			require.NoError(t, resolve(good), name)
		}
		for _, bad := range c.bad {
			require.Error(t, resolve(bad), name)
		}
	}
}

func TestReferenceNamesEveryKind(t *testing.T) {
	f := reflect.StructField{Tag: `min:"0" max:"2" unit:"tokens"`}
	require.Equal(t, "0 to 2 (tokens)", allowed(f, reflect.ValueOf(new(int)).Elem()))
	f = reflect.StructField{Tag: `enum:"a|b"`}
	require.Equal(t, "a, b", allowed(f, reflect.ValueOf(new(string)).Elem()))
	f = reflect.StructField{Tag: `min:"0"`}
	require.Equal(t, "0 or more", allowed(f, reflect.ValueOf(new(uint64)).Elem()))
}
