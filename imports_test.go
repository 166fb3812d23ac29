package agentfly_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/agentfly/agentfly"

// floors lists every package of the module from the ground up: a package imports only packages of lower floors. What is not listed is an
// error, so that a new package finds its floor before it is used. A path that ends in /... is a folder of programs or examples.
var floors = [][]string{
	{
		"cgo", "trajectory", "sandbox", "masks/tokenizer", "python/protocol", "rewards/mathequal", "engines/vllm/vllmtest",
		"internal/charsets", "internal/home", "internal/hosted", "internal/httpserver", "internal/installed", "internal/panics", "internal/procgroup", "internal/retry", "internal/plot", "internal/scripts", "internal/sysmon", "internal/terminal", "internal/watchdog",
		"internal/wording",
	},
	{"algorithms", "grammar", "internal/exposition", "internal/doctor", "internal/terminal/terminaltest", "jinja", "jinja/jinjatest", "internal/filelock", "internal/pool", "internal/sessionkey", "python/gpython"},
	{"masks", "modelfile", "python"},
	{"internal/tensors", "resources"},
	{"engines", "policy", "rewards", "tools", "trainer"},
	{
		"engines/enginetest", "engines/local", "engines/openai", "engines/scripted", "engines/vllm", "policy/policytest", "tools/workspace", "trainer/memory",
		"tools/calculator", "tools/corpus", "tools/http", "tools/mcp", "agents", "environments", "dialects",
	},
	{"environments/environmenttest", "environments/frozenlake", "environments/python", "environments/sokoban", "environments/voxel"},
	{"dialects/forms", "environments/alfworld", "environments/browser", "environments/reasoning", "environments/scienceworld", "environments/textworld", "environments/textworldexpress"},
	{"environments/openenv", "gateway", "orchestrator/external", "tools/code", "tools/dense", "tools/files", "tools/search", "tools/web", "serve", "orchestrator/tree"},
	{"environments/boxed", "orchestrator/job", "orchestrator/store"},
	{"environments/chess", "environments/harbor", "environments/mle", "environments/repository", "environments/webshop", "orchestrator/data", "orchestrator/processes", "orchestrator/rollout", "orchestrator/weights"},
	{"orchestrator/rollout/rollouttest", "orchestrator/schedule", "orchestrator/session"},
	{"orchestrator/report"},
	{"orchestrator/checkpoint", "view/viewtest"},
	{"orchestrator/objective"},
	{"orchestrator/runfolder"},
	{"orchestrator/recovery", "orchestrator/overview", "view"},
	{"orchestrator/replay", "orchestrator/overview/overviewtest", "export"},
	{"orchestrator"},
	{"cli"},
	{""},
	{"cmd/agentfly", "docs", "e2e", "examples/...", "scripts/..."},
}

// floorOf is the number of a package's floor.
func floorOf(pkg string) (int, bool) {
	for n, packages := range floors {
		for _, p := range packages {
			if folder, ok := strings.CutSuffix(p, "/..."); p == pkg || ok && (pkg == folder || strings.HasPrefix(pkg, folder+"/")) {
				return n, true
			}
		}
	}
	return 0, false
}

// violations returns one line for each import that does not go down. from is the path of the importing package in the module.
func violations(file, from string, imports []string) (out []string) {
	top, ok := floorOf(from)
	if !ok {
		return []string{file + ": the package " + from + " has no floor in imports_test.go"}
	}
	for _, to := range imports {
		if to != module && !strings.HasPrefix(to, module+"/") {
			continue
		}
		to = strings.TrimPrefix(strings.TrimPrefix(to, module), "/")
		floor, ok := floorOf(to)
		if shared, _, _ := strings.Cut(from, "/"); shared == "examples" || shared == "scripts" { // programs may have packages of their own
			if strings.HasPrefix(to, shared+"/") {
				continue
			}
		}
		if !ok || floor >= top {
			out = append(out, file+": "+from+" → "+to)
		}
	}
	return out
}

func TestImportsGoOneWay(t *testing.T) {
	var bad []string
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, s := range f.Imports {
			p, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return err
			}
			if p == "C" && !strings.HasPrefix(path, "cgo/") {
				bad = append(bad, path+`: only cgo/ imports "C"`)
			}
			imports = append(imports, p)
		}
		from := filepath.ToSlash(filepath.Dir(path))
		if from == "." {
			from = ""
		}
		bad = append(bad, violations(path, from, imports)...)
		files++
		return nil
	}))
	require.Empty(t, bad)
	require.Greater(t, files, 5)
}

func TestImportRuleCanFail(t *testing.T) {
	require.Equal(t, []string{"x.go: tools → rewards"}, violations("x.go", "tools", []string{module + "/rewards"}))
	require.Equal(t, []string{"x.go: cgo → trajectory"}, violations("x.go", "cgo", []string{module + "/trajectory"}))
	require.Equal(t, []string{"x.go: engines → unheardof"}, violations("x.go", "engines", []string{module + "/unheardof"}))
	require.Equal(t, []string{"x.go: orchestrator/rollout → orchestrator/schedule"}, violations("x.go", "orchestrator/rollout", []string{module + "/orchestrator/schedule"}))
	require.Equal(t, []string{"x.go: the package orchestrator/new has no floor in imports_test.go"}, violations("x.go", "orchestrator/new", nil))
	require.Empty(t, violations("x.go", "engines", []string{module + "/trajectory", "fmt"}))
}
