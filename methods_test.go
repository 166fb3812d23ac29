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
const mostMethods = 22

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

// tooLarge names the types that have more methods than they may.
func tooLarge(counts map[string]int) (out []string) {
	for name, n := range counts {
		if n > mostMethods {
			out = append(out, fmt.Sprintf("%s has %d methods, at most %d are allowed; what is a part of its own becomes a type of its own", name, n, mostMethods))
		}
	}
	return out
}

// standIn tells whether a file stands in for others in a build without libtorch: it has their methods once more.
func standIn(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if c.Pos() < f.Package && c.Text == "//go:build !torch" {
				return true
			}
		}
	}
	return false
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
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err == nil && !standIn(f) {
			countMethods(counts, filepath.ToSlash(filepath.Dir(path)), f)
		}
		return err
	}))
	require.Greater(t, len(counts), 100)
	require.Empty(t, tooLarge(counts))
}

func TestTheCountOfMethodsCanFail(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc (a A) M() {}\nfunc (a *A) N() {}\nfunc (g *G[K]) M() {}\nfunc (h H[K, V]) M() {}\nfunc F() {}", 0)
	require.NoError(t, err)
	counts := map[string]int{}
	countMethods(counts, "x", f)
	require.Equal(t, map[string]int{"x.A": 2, "x.G": 1, "x.H": 1}, counts)

	require.Empty(t, tooLarge(map[string]int{"x.A": mostMethods}))
	require.Len(t, tooLarge(map[string]int{"x.A": mostMethods + 1}), 1)
	f, err = parser.ParseFile(token.NewFileSet(), "x.go", "//go:build !torch\n\npackage x", parser.ParseComments)
	require.NoError(t, err)
	require.True(t, standIn(f))
}
