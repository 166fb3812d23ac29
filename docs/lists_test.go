package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

// The lists of stop reasons, origins and causes have all of them. A step has no trajectory that was cancelled or recorded, and an error that ends the
// run is no metric of a step.
func TestListsOfReasonsAreWhole(t *testing.T) {
	stops := slices.DeleteFunc(trajectory.StopReasons(), func(s trajectory.StopReason) bool {
		return s == trajectory.StopCancelled || s == trajectory.StopRecorded
	})
	failing := slices.DeleteFunc(trajectory.Origins(), trajectory.Origin.EndsRun)
	for name, c := range map[string]struct {
		page, from, to string // the part of the page that has the list, from its first words to those behind it
		want           []string
	}{
		"stops of a step":  {"metrics.md", "- `stop/REASON`", "\n#", texts(stops)},
		"errors of a step": {"metrics.md", "- `errors/ORIGIN`", "\n- ", texts(failing)},
		"origins":          {"deadlines.md", "## Errors by origin", "\n|", texts(trajectory.Origins())},
		"causes":           {"tools.md", "| cause |", "\n\n", texts(trajectory.Causes())},
		"stop reasons":     {"architecture.md", "| stop reason |", "\n", texts(trajectory.StopReasons())},
		"words of origins": {"architecture.md", "| origin |", "\n", texts(trajectory.Origins())},
		"words of causes":  {"architecture.md", "| cause |", "\n", texts(trajectory.Causes())},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(c.page)
			require.NoError(t, err)
			_, after, found := strings.Cut(string(text), c.from)
			require.True(t, found, "%s has no %q", c.page, c.from)
			list, _, found := strings.Cut(after, c.to)
			require.True(t, found)
			require.Subset(t, regexp.MustCompile(`\w+`).FindAllString(list, -1), c.want)
		})
	}
}

func texts[T ~string](all []T) (out []string) {
	for _, v := range all {
		out = append(out, string(v))
	}
	return out
}

// Every page that lists the names of calls that serve takes has all of them, and the counts of estimators and losses are those of the registry.
func TestParsersAndAlgorithmsAreThoseOfTheProgram(t *testing.T) {
	for page, line := range map[string]string{
		"agents.md": "`agentfly serve --tool-call-parser` takes ", "serve.md": "| `--tool-call-parser` |", "status.md": "| `agentfly serve --tool-call-parser` ",
	} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		_, after, found := strings.Cut(string(text), line)
		require.True(t, found, page)
		list := regexp.MustCompile(`[.;(]|, whole`).Split(after, 2)[0]
		require.Subset(t, regexp.MustCompile(`\w+`).FindAllString(list, -1), agents.NewRegistry().Parsers(), page)
	}
	status, err := os.ReadFile("status.md")
	require.NoError(t, err)
	known := algorithms.NewRegistry()
	require.Contains(t, string(status), fmt.Sprintf("| %d estimators, %d losses, ", len(known.Estimators()), len(known.Losses())))
}

// docs/agents.md begins with where each kind has its example job.
func TestEveryKindOfAgentHasAnExample(t *testing.T) {
	text, err := os.ReadFile("agents.md")
	require.NoError(t, err)
	head, _, _ := strings.Cut(string(text), "\n\n|")
	for _, kind := range agents.NewRegistry().KindNames() {
		if _, err := os.Stat("../examples/agents_" + kind + ".yaml"); err != nil {
			require.Regexp(t, `examples/\w+(\.yaml)?`+"`"+`\)?\s+for\s+`+"`"+kind+"`", head)
		}
	}
}

// docs/rewards.md has every reward.
func TestTheRewardsAreOnTheirPage(t *testing.T) {
	text, err := os.ReadFile("rewards.md")
	require.NoError(t, err)
	for _, name := range rewards.Prebuilt().Names() {
		require.Regexp(t, "`"+name+"`|name: "+name, string(text))
	}
}

// The doc of package orchestrator has every package of its folder.
func TestTheSubPackagesAreInTheDoc(t *testing.T) {
	text, err := os.ReadFile("../orchestrator/doc.go")
	require.NoError(t, err)
	folders, err := os.ReadDir("../orchestrator")
	require.NoError(t, err)
	for _, f := range folders {
		if f.IsDir() && f.Name() != "testdata" {
			require.Contains(t, string(text), "\n//   - "+f.Name()+" ")
		}
	}
}
