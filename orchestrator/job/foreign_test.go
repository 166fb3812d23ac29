package job

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
)

// paths are those of all settings.
func paths() []string {
	var out []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if _, custom := customSchema(reflect.New(t).Interface()); t.Kind() != reflect.Struct || custom {
			return
		}
		for i := range t.NumField() {
			if key := keyOf(t.Field(i)); key != "" {
				out = append(out, join(path, key))
				walk(t.Field(i).Type, join(path, key))
			}
		}
	}
	walk(reflect.TypeFor[Job](), "")
	return out
}

var named = regexp.MustCompile(`\b(?:model|engine|agent|rewards|data|rollout|algorithm|trainer|eval|checkpoint|sft|distill)\.[a-z_0-9.]+`)

// What other programs' settings are called here exists, and no setting of ours is explained as another program's.
func TestForeignNamesLeadToSettings(t *testing.T) {
	all := paths()
	for name, hint := range foreign {
		for _, path := range named.FindAllString(hint, -1) {
			require.Contains(t, all, strings.TrimRight(path, "."), name)
		}
		require.Equal(t, strings.ToLower(name), name)
	}
	for _, path := range all {
		key := path[strings.LastIndexByte(path, '.')+1:]
		_, taken := foreign[key]
		require.False(t, taken && !slices.Contains([]string{"max_tokens"}, key), "%s is a setting", path)
	}
}

// The number of steps is the setting that people look for first: a job that has it in no block is told of its place, and a flag of its name leads there.
func TestStepsLeadToTheTrainer(t *testing.T) {
	_, err := Load("../../examples/tiny.yaml", "steps=5")
	require.ErrorContains(t, err, `--set steps=5: unknown key "steps" in the job: it stands at trainer.steps; allowed in the job: version, `)
	_, err = Load("../../examples/tiny.yaml", "eval.steps=5")
	require.NotContains(t, err.Error(), "it stands at trainer.steps")
	for word, path := range map[string]string{
		"steps": "trainer.steps", "learning-rate": "trainer.learning_rate", "trainer.steps": "trainer.steps", "group_size": "rollout.group_size",
		"device": "device", "model": "", "every": "", "trainer.stepps": "", "zzz": "", "": "",
	} {
		require.Equal(t, path, PathOf(word), word)
	}
}

// Every key of the schema, also of entries of lists, says what it is for.
func TestEveryKeyOfTheSchemaIsDescribed(t *testing.T) {
	keys := 0
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case []any:
			for i, item := range v {
				walk(item, fmt.Sprintf("%s.%d", path, i))
			}
		case map[string]any:
			properties, _ := v["properties"].(map[string]any)
			for key, property := range properties {
				keys++
				text, _ := property.(map[string]any)["description"].(string)
				require.NotEmpty(t, text, "%s.%s", path, key)
			}
			for key, item := range v {
				walk(item, path+"."+key)
			}
		}
	}
	walk(Schema(agents.NewRegistry()), "job")
	require.Greater(t, keys, 150)
	entries := Schema(agents.NewRegistry())["properties"].(map[string]any)["agent"].(map[string]any)["properties"].(map[string]any)["tools"].(map[string]any)["items"].(map[string]any)["oneOf"].([]any)
	for _, key := range []string{"name", "python", "mcp", "http", "only", "timeout", "max_tokens", "concurrency", "rate", "retries", "cache"} {
		require.Contains(t, entries[1].(map[string]any)["properties"], key)
	}
}
