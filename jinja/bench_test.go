package jinja_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
)

// BenchmarkCompile compiles the 73 real templates of testdata once an operation.
func BenchmarkCompile(b *testing.B) {
	var templates map[string]string
	readGolden(b, "templates.json.gz", &templates)
	for b.Loop() {
		for _, source := range templates {
			_, err := jinja.Compile(source, options)
			require.NoError(b, err)
		}
	}
}

// BenchmarkRender makes all the renderings of the goldens of every template once an operation, those that raise included.
func BenchmarkRender(b *testing.B) {
	var g goldens
	var templates map[string]string
	readGolden(b, "goldens.json.gz", &g)
	readGolden(b, "templates.json.gz", &templates)
	type rendering struct {
		template            *jinja.Template
		conversation, tools json.RawMessage
		in                  jinja.Input
	}
	var all []rendering
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		tmpl, err := jinja.Compile(templates[name], options)
		require.NoError(b, err)
		for _, r := range g.Renders[name] {
			var c, tools, extra int
			var prompt bool
			for i, into := range []any{&c, &tools, &prompt, &extra} {
				require.NoError(b, json.Unmarshal(r[i], into))
			}
			all = append(all, rendering{tmpl, g.Conversations[c], g.Tools[tools], jinja.Input{AddGenerationPrompt: prompt, Extra: g.Extras[extra], Now: now}})
		}
	}
	for b.Loop() {
		for _, r := range all {
			_, _ = r.template.RenderJSON(r.conversation, r.tools, r.in)
		}
	}
	b.ReportMetric(float64(len(all)), "renderings/op")
}
