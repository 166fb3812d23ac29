package algorithms

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// A default that is written as a whole number is the number that a job gets which leaves the key out; a key that could not be read is refused when it is registered.
func TestKeysOfAProgramsOwnAreWhatTheySay(t *testing.T) {
	add := map[string]func(r *Registry, keys ...Key) error{
		"loss": func(r *Registry, keys ...Key) error {
			return r.AddLoss(LossSpec{Name: "own", Keys: keys, New: func(Settings) (Loss, error) { return nil, nil }})
		},
		"estimator": func(r *Registry, keys ...Key) error {
			return r.AddEstimator(EstimatorSpec{Name: "own", Keys: keys, New: func(Settings) (Estimator, error) { return perTrajectory(centred), nil }})
		},
	}
	for kind, add := range add {
		t.Run(kind, func(t *testing.T) {
			for _, number := range []any{3, int64(3), 3.0} {
				r, keys := NewRegistry(), []Key{{Name: "strength", Default: number}, {Name: "on", Default: true}, {Name: "mode", Default: "a"}}
				require.NoError(t, add(r, keys...))
				require.Equal(t, number, keys[0].Default, "the caller's list")
				config, settings := Config{Loss: Choice{Name: "own"}}, func(a *Algorithm) Settings { return a.Loss.Settings }
				if kind == "estimator" {
					config, settings = Config{Advantage: Choice{Name: "own"}}, func(a *Algorithm) Settings { return a.Estimator.Settings }
				}
				a, err := config.Resolve(r)
				require.NoError(t, err)
				require.Equal(t, 3.0, settings(a).Float("strength"))
				require.True(t, settings(a).Bool("on"))
				require.Equal(t, "a", settings(a).String("mode"))
				require.Contains(t, a.Describe(), "strength = 3")
			}
			for want, keys := range map[string][]Key{
				`its key 0 has no name`: {{Default: 1.0}},
				`its key "name" cannot be given: a job names what it chooses with it`: {{Name: "name", Default: "a"}},
				`its key "a" stands twice`: {{Name: "a", Default: 1.0}, {Name: "b", Default: 1.0}, {Name: "a", Default: true}},
				`the default of its key "a" is [1], a []int; allowed are a finite float64 or int, a bool, a string, and nil`:        {{Name: "a", Default: []int{1}}},
				`the default of its key "a" is NaN, a float64; allowed are a finite float64 or int, a bool, a string, and nil`:      {{Name: "a", Default: math.NaN()}},
				`the default of its key "a" is 1s, a time.Duration; allowed are a finite float64 or int, a bool, a string, and nil`: {{Name: "a", Default: time.Second}},
				`the default of its key "a" is 0.1, a float32; allowed are a finite float64 or int, a bool, a string, and nil`:      {{Name: "a", Default: float32(0.1)}},
			} {
				require.EqualError(t, add(NewRegistry(), keys...), fmt.Sprintf("algorithms: %s %q cannot be registered: %s", kind, "own", want))
			}
		})
	}
}
