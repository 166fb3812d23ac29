package job

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run's copy of its job says with which options of --set its job file is that job again: no fewer than were given, and none that changes nothing.
func TestTheOptionsThatARunWasBegunWith(t *testing.T) {
	for name, sets := range map[string][]string{
		"none":                nil,
		"numbers":             {"trainer.steps=6", "trainer.learning_rate=0.0005", "checkpoint.every=2"},
		"a seed":              {"seed=2"},
		"a text with a blank": {"agent.system=Be brief, and # right."},
		"lines":               {`agent.system="one\ntwo"`},
		"one of a list":       {"rewards.1.weight=0.5"},
		"a shorter list":      {"rewards=[{name: final_answer, require_steps: true, weight: 0.8}]"},
		"a block":             {"model.lora.rank=4"},
		"a literal secret":    {"engine.kind=vllm", `engine.urls=["http://a"]`, "engine.served_model=m", "engine.api_key=(secret)"},
	} {
		t.Run(name, func(t *testing.T) {
			began, err := Load("../../examples/tiny.yaml", sets...)
			require.NoError(t, err)
			ran, err := began.ParseAs(began.Path(), began.Source())
			require.NoError(t, err)
			again, err := Overrides(ran)
			require.NoError(t, err)
			require.Equal(t, sets, again)
		})
	}
}

// A job file that is good only with --set has its options too, and one that is gone has none.
func TestTheOptionsOfAJobFileThatNeedsThem(t *testing.T) {
	text, err := os.ReadFile("../../examples/tiny.yaml")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("model: {path: tiny/model}\n"), nil, 1), 0o600))
	began, err := Load(path, "model.path=elsewhere", "trainer.steps=7", "output=runs/y")
	require.NoError(t, err)
	ran, err := began.ParseAs(path, began.Source())
	require.NoError(t, err)
	again, err := Overrides(ran)
	require.NoError(t, err)
	require.Equal(t, []string{"model.path=elsewhere", "trainer.steps=7"}, again)

	require.NoError(t, os.Remove(path))
	_, err = Overrides(ran)
	require.ErrorIs(t, err, os.ErrNotExist)
}
