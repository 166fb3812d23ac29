package algorithms

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// parsed is a file of this package, whatever its build tags.
func parsed(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	require.NoError(t, err)
	return f
}

// methodsOf are the exported methods of a type in a file, with the types of parameters and results.
func methodsOf(t *testing.T, name, receiver string) (out []string) {
	t.Helper()
	for _, d := range parsed(t, name).Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || !f.Name.IsExported() || types.ExprString(f.Recv.List[0].Type) != receiver {
			continue
		}
		text := f.Name.Name
		for _, list := range []*ast.FieldList{f.Type.Params, f.Type.Results} {
			for _, field := range list.List {
				text += strings.Repeat(" "+strings.TrimPrefix(types.ExprString(field.Type), "gotorch."), max(len(field.Names), 1))
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// A file with a loss compiles in both builds, so both have the same operations on tensors.
func TestBothBuildsHaveTheSameOperations(t *testing.T) {
	want := methodsOf(t, "ops.go", "*Ops")
	require.Contains(t, want, "Clamp Tensor float64 float64 Tensor")
	require.Equal(t, want, methodsOf(t, "unavailable.go", "*Ops"))
}

// Each estimator and each loss of this package is declared in a file of its own, which both builds have.
func TestADeclarationIsOneFile(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	declared := map[string]int{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, here := parsed(t, name), 0
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if verb := types.ExprString(call.Fun); verb == "declareLoss" || verb == "declareEstimator" {
					declared[verb]++
					here++
				}
			}
			return true
		})
		if here == 0 {
			continue
		}
		require.Equal(t, 1, here, name)
		for _, group := range f.Comments {
			for _, c := range group.List {
				require.False(t, constraint.IsGoBuild(c.Text), "%s: %s", name, c.Text)
			}
		}
	}
	r := NewRegistry()
	require.Equal(t, map[string]int{"declareLoss": len(r.Losses()), "declareEstimator": len(r.Estimators())}, declared)
	require.NotEmpty(t, r.Losses())
	require.NotEmpty(t, r.Estimators())
}
