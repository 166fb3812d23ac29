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

// rank orders the top-level folders: a package imports only folders of a lower rank, or its own folder.
// See CONTRIBUTING.md.
var rank = map[string]int{
	"examples": 8, "cmd": 7, "scripts": 7, "e2e": 7, "": 6, "cli": 5, "orchestrator": 4,
	"serve": 3, "engines": 2, "algorithms": 2, "tools": 2, "rewards": 2, "masks": 2, "policy": 2, "trainer": 3,
	"trajectory": 0, "modelfile": 0, "cgo": 0, "jinja": 1,
	"resources": 1, "python": 0, "sandbox": 0, "internal": -1, "internal/tensors": 1,
}

// allowed are the imports between siblings that have a reason.
var allowed = map[string]string{
	"policy → masks":   "a policy is a model with its tokenizer and template",
	"python → sandbox": "the workers of a file run in a sandbox on request",
}

// room is the longest path of rank that holds the package of an import path, or else its first folder.
func room(path string) string {
	dir := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	first, _, _ := strings.Cut(dir, "/")
	for ; dir != ""; dir = dir[:max(0, strings.LastIndexByte(dir, '/'))] {
		if _, ok := rank[dir]; ok {
			return dir
		}
	}
	return first
}

// violations returns one line for each import that goes the wrong way.
func violations(file, from string, imports []string) []string {
	var out []string
	for _, to := range imports {
		if to != module && !strings.HasPrefix(to, module+"/") {
			continue
		}
		a, b := from, room(to)
		if a == b || allowed[a+" → "+b] != "" {
			continue
		}
		ra, known := rank[a]
		rb, alsoKnown := rank[b]
		if !known || !alsoKnown || rb >= ra {
			out = append(out, file+": "+a+" → "+b)
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
		from := ""
		if dir := filepath.ToSlash(filepath.Dir(path)); dir != "." {
			from = room(module + "/" + dir)
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
	require.Empty(t, violations("x.go", "engines", []string{module + "/trajectory", "fmt"}))
}
