package agentfly_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostMethods is how many methods a type has at most: one that needs more is two types.
const mostMethods = 25

// largeTypes are the types that still have more, each with its present number, which can only fall. A line goes when its type has no more than
// mostMethods.
var largeTypes = map[string]int{
	"algorithms.Algorithm":         39,
	"algorithms.Ops":               37,
	"cgo.Group":                    27,
	"cgo.Model":                    43,
	"jinja.compiler":               38,
	"jinja.parser":                 49,
	"orchestrator/job.decoder":     41,
	"orchestrator/session.Session": 48,
	"orchestrator/store.Store":     50,
	"rewards/mathequal.parser":     33,
	"trainer.Trainer":              30,
	"trainer.stepRun":              38,
}

// countMethods adds the methods that a file declares to those of their types, as PACKAGE.TYPE.
func countMethods(counts map[string]int, pkg string, f *ast.File) {
	for _, d := range f.Decls {
		method, ok := d.(*ast.FuncDecl)
		if !ok || method.Recv == nil {
			continue
		}
		t := method.Recv.List[0].Type
		if pointer, ok := t.(*ast.StarExpr); ok {
			t = pointer.X
		}
		switch generic := t.(type) {
		case *ast.IndexExpr:
			t = generic.X
		case *ast.IndexListExpr:
			t = generic.X
		}
		if name, ok := t.(*ast.Ident); ok {
			counts[pkg+"."+name.Name]++
		}
	}
}

// tooLarge names the types that have more methods than they may, and the lines of the list that are above what is there.
func tooLarge(counts, large map[string]int) (out []string) {
	for name, n := range counts {
		if most := max(mostMethods, large[name]); n > most {
			out = append(out, fmt.Sprintf("%s has %d methods, at most %d are allowed; what is a part of its own becomes a type of its own", name, n, most))
		}
	}
	for name, n := range large {
		switch got := counts[name]; {
		case got <= mostMethods:
			out = append(out, fmt.Sprintf("%s has %d methods; take its line out of largeTypes", name, got))
		case got < n:
			out = append(out, fmt.Sprintf("%s has %d methods; lower its line in largeTypes from %d", name, got, n))
		}
	}
	return out
}

func TestTypesAreSmall(t *testing.T) {
	counts := map[string]int{}
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
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			countMethods(counts, filepath.ToSlash(filepath.Dir(path)), f)
		}
		return err
	}))
	require.Greater(t, len(counts), 100)
	require.Empty(t, tooLarge(counts, largeTypes))
}

func TestTheCountOfMethodsCanFail(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc (a A) M() {}\nfunc (a *A) N() {}\nfunc (g *G[K]) M() {}\nfunc (h H[K, V]) M() {}\nfunc F() {}", 0)
	require.NoError(t, err)
	counts := map[string]int{}
	countMethods(counts, "x", f)
	require.Equal(t, map[string]int{"x.A": 2, "x.G": 1, "x.H": 1}, counts)

	require.Empty(t, tooLarge(map[string]int{"x.A": mostMethods}, nil))
	require.Empty(t, tooLarge(map[string]int{"x.A": 30}, map[string]int{"x.A": 30}))
	require.Len(t, tooLarge(map[string]int{"x.A": mostMethods + 1}, nil), 1)
	require.Len(t, tooLarge(map[string]int{"x.A": 31}, map[string]int{"x.A": 30}), 1)
	require.Len(t, tooLarge(map[string]int{"x.A": 29}, map[string]int{"x.A": 30}), 1, "the list only falls")
	require.Len(t, tooLarge(map[string]int{"x.A": mostMethods}, map[string]int{"x.A": 30}), 1)
	require.Len(t, tooLarge(nil, map[string]int{"x.Gone": 30}), 1)
}
