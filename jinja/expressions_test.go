package jinja_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
)

// compileError says whether a kind of Python error is found when the template is compiled.
func compileError(kind string) bool {
	return kind == "TemplateSyntaxError" || kind == "TemplateAssertionError" || kind == "SyntaxError"
}

func TestExpressionsAsInPython(t *testing.T) {
	var g struct {
		Data  json.RawMessage
		Cases [][2]json.RawMessage
	}
	readGolden(t, "expressions.json.gz", &g)
	require.Greater(t, len(g.Cases), 9000)
	refused := map[string]int{}
	for _, c := range g.Cases {
		var source string
		require.NoError(t, json.Unmarshal(c[0], &source))
		tmpl, err := jinja.Compile(source, options)
		var compile *jinja.CompileError
		if errors.As(err, &compile) {
			var f failure
			if json.Unmarshal(c[1], &f) != nil || !compileError(f.Error) {
				refused["compile: "+compile.Construct+": "+compile.Description]++
				if compile.Construct == "" {
					t.Errorf("%q: %v; Python: %s", source, err, c[1])
				}
			}
			continue
		}
		require.NoError(t, err)
		got, err := tmpl.RenderJSON(json.RawMessage(`[{"role": "user", "content": "hi"}]`), nil, jinja.Input{
			AddGenerationPrompt: true, Extra: map[string]any{"d": g.Data}, Now: now,
		})
		var failed *jinja.RenderError
		if errors.As(err, &failed) && failed.Kind == "Unsupported" {
			refused[failed.Message]++ // refused, not approximated
			continue
		}
		if bad := check(got, err, c[1]); bad != nil {
			t.Errorf("%q: %v", source, bad)
		}
	}
	total := 0
	for what, n := range refused {
		total += n
		if testing.Verbose() {
			t.Logf("refused %4d times: %s", n, what)
		}
	}
	t.Logf("%d cases, %d of them refused", len(g.Cases), total)
	require.Less(t, total*20, len(g.Cases), "too much is refused") // at most 5%
}
