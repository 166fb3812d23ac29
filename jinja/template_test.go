package jinja_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/trajectory"
)

func TestUnsupportedConstructsAreRefusedByNameAndLine(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% block x %}{% endblock %}":            "template: line 2: {% block %}: template inheritance is not supported",
		"{% extends 'x' %}":                         "template: line 1: {% extends %}: template inheritance is not supported",
		"\n\n{% include 'x' %}":                     "template: line 3: {% include %}: there is no loader of other templates",
		"{% import 'x' as y %}":                     "template: line 1: {% import %}: there is no loader of other templates",
		"{% from 'x' import y %}":                   "template: line 1: {% from %}: there is no loader of other templates",
		"{% autoescape true %}x{% endautoescape %}": "template: line 1: {% autoescape %}: automatic escaping is not supported",
		"{{ x\n|pprint }}":                          "template: line 2: filter pprint: Python's pretty printer is not implemented",
		"{% if x %}{{ x|random }}{% endif %}":       "template: line 1: filter random: the result would not be reproducible",
		"{{ x|map('urlize') }}":                     "template: line 1: filter urlize: HTML is not supported",
		"{{ x|wordwrap }}":                          "template: line 1: filter wordwrap: Python's textwrap is not implemented",
		"\n{{ lipsum() }}":                          "template: line 2: lipsum: the result would not be reproducible",
		"{{ self.x }}":                              "template: line 1: self: template inheritance is not supported",
		"{{ x }}\n{{ x.encode() }}":                 "template: line 2: method encode: not implemented",
		"{{ 'a' }}{{ naïve }}":                      "template: line 1: naïve: names outside ASCII are not supported",
		`{{ "\N{DASH}" }}`:                          `template: line 1: \N{…}: character names are not supported`,
		`{{ "\ud83d" }}`:                            `template: line 1: \ud83d: a lone surrogate cannot be written as UTF-8`,
		"{{ x[1:2, 3] }}":                           "template: line 1: [a:b, c]: a slice inside a tuple is not supported",
	} {
		_, err := jinja.Compile(source, jinja.Options{})
		require.EqualError(t, err, want, source)
		var compile *jinja.CompileError
		require.ErrorAs(t, err, &compile)
		require.NotEmpty(t, compile.Construct)
	}
}

func TestSyntaxErrorsTellTheLine(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% if x %}":           "template: line 2: Unexpected end of template. Jinja was looking for the following tags: [\"elif\" \"else\" \"endif\"]",
		"\n{{ 1 + }}":             "template: line 2: unexpected \"variable_end\"",
		"{% nosuch %}":            "template: line 1: Encountered unknown tag \"nosuch\".",
		"\n\n{{ x|nosuch }}":      "template: line 3: No filter named \"nosuch\".",
		"{{ x is nosuch }}":       "template: line 1: No test named \"nosuch\".",
		"{# x":                    "template: line 1: Missing end of comment tag",
		"{{ (1] }}":               "template: line 1: unexpected ']', expected ')'",
		"{% break %}":             "template: line 1: break or continue outside of a loop",
		"{{ \xff }}":              "template: line 1: the template is not valid UTF-8",
		"{% set 1 = 2 %}":         "template: line 1: can't assign to this expression",
		strings.Repeat("(", 1000): "template: line 1: unexpected end of template",
	} {
		_, err := jinja.Compile(source, jinja.Options{})
		if strings.HasPrefix(source, "((") {
			source, want = "{{ "+source, "nested deeper than 200 levels"
			_, err = jinja.Compile(source, jinja.Options{})
		}
		require.ErrorContains(t, err, want, source)
	}
}

func render(t testing.TB, source string, in jinja.Input) (string, error) {
	t.Helper()
	tmpl, err := jinja.Compile(source, jinja.Options{BOSToken: "<s>"})
	require.NoError(t, err)
	if in.Messages == nil {
		in.Messages = []trajectory.Message{trajectory.Text("user", "hi")}
	}
	return tmpl.Render(in)
}

func TestErrorsAreTyped(t *testing.T) {
	_, err := render(t, "{{ raise_exception('no ' ~ messages[0].role) }}", jinja.Input{})
	var raised *jinja.RaisedError
	require.ErrorAs(t, err, &raised)
	require.Equal(t, "no user", raised.Message)
	_, err = render(t, "x\n{{ messages[0].nosuch.x }}", jinja.Input{})
	require.EqualError(t, err, "template: line 2: UndefinedError: 'dict object' has no attribute 'nosuch'")
	_, err = render(t, "{{ eos_token + 'x' }}", jinja.Input{})
	require.EqualError(t, err, "template: line 1: UndefinedError: 'eos_token' is undefined")
	_, err = render(t, "{{ strftime_now('%Y') }}", jinja.Input{})
	require.ErrorContains(t, err, "set Input.Now")
	_, err = render(t, "{{ [1]|tojson }}{{ messages[0].content.casefold() }}", jinja.Input{
		Messages: []trajectory.Message{trajectory.Text("user", "é")},
	})
	require.EqualError(t, err, "template: line 1: Unsupported: casefold of text outside ASCII is not rendered exactly")
	tmpl, err := jinja.Compile("x", jinja.Options{})
	require.NoError(t, err)
	_, err = tmpl.Render(jinja.Input{})
	require.ErrorContains(t, err, "empty conversation")
	for _, bad := range []string{`{}`, `[1]`, `[{]`, `[{"role": "\ud800"}]`, `[{"role": 01}]`, `[] x`, "[{\"a\": \"\n\"}]", strings.Repeat("[", 2000)} {
		_, err = tmpl.RenderJSON(json.RawMessage(bad), nil, jinja.Input{})
		require.Error(t, err, bad)
	}
	_, err = tmpl.RenderJSON(json.RawMessage(`[{"role": "user"}]`), json.RawMessage(`{}`), jinja.Input{})
	require.EqualError(t, err, "template: tools must be a JSON list, not dict")
}

func TestRenderingIsBounded(t *testing.T) {
	for name, source := range map[string]string{
		"steps":     "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
		"doubling":  "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"lists":     "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"repeat":    "{{ 'x' * 10 ** 12 }}",
		"output":    "{% set x = 'x' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}",
		"power":     "{{ 9 ** (9 ** 9) }}",
		"powers":    "{% set ns = namespace(x=2) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
		"recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"loop":      "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
		"itself":    "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
		"replace":   "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
		"join":      "{{ ['x' * 1000000] * 1000 | join }}{{ (['x' * 1000000] * 1000) | join }}",
		"width":     "{{ '%1000000000d' % 1 }}",
		"just":      "{{ 'x'.ljust(10 ** 12) }}",
		"indent":    "{{ ('\n' * 1000000) | indent('x' * 1000000, true, true) }}",
		"json":      "{% set ns = namespace(x=['y' * 1000]) %}{% for i in range(20) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
		"text":      "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
		"equality":  "{% set ns = namespace(x=[], y=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		"order":     "{% set ns = namespace(x=[], y=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x < ns.y }}",
		"scans":     "{% set x = 'x' * 10000000 %}{% for i in range(100000) %}{{ 'y' in x }}{{ x.count('y') }}{{ x | wordcount }}{% endfor %}",
		"key":       "{% set ns = namespace(x=(1, 2)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := render(t, source, jinja.Input{})
			require.Error(t, err)
			require.Less(t, time.Since(start), 30*time.Second)
		})
	}
}

func TestArithmeticIsBounded(t *testing.T) {
	for name, source := range map[string]string{
		"a long text": "{{ 'ab' * 99999999999 }}",
		"a long list": "{{ ([0] * 99999999999) | length }}",
		"squares":     "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
		"products":    "{% set n = 7 ** 100000 %}{% for i in range(100000) %}{% set m = n * n %}{% endfor %}",
		"quotients":   "{% set n = 7 ** 100000 %}{% set m = 11 ** 40000 %}{% for i in range(100000) %}{% set q = n // m %}{% endfor %}",
		"remainders":  "{% set n = 7 ** 100000 %}{% set m = 11 ** 40000 %}{% for i in range(100000) %}{% set q = n % m %}{% endfor %}",
		"fractions":   "{% set n = 7 ** 100000 %}{% set m = 11 ** 81000 %}{% for i in range(100000) %}{% set q = n / m %}{% endfor %}",
		"a power":     "{% set n = 10 ** 4000 %}{% set m = n ** 9000 %}",
		"keys":        "{% set n = 7 ** 100000 %}{% for i in range(1000) %}{% set m = {n: 1} %}{% endfor %}",
		"powers":      "{% for i in range(100000) %}{% set n = 7 ** 200000 %}{% endfor %}",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := render(t, source, jinja.Input{})
			var failed *jinja.RenderError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, "Limit", failed.Kind)
			require.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

// What is quadratic in the length of an integer takes none that is longer than Python writes in decimal.
func TestLongIntegers(t *testing.T) {
	const tooLong, key = "Exceeds the limit (4300 digits) for integer string conversion", "a key is an integer of more than 4300 digits"
	for name, c := range map[string]struct{ source, kind, says string }{
		"text":    {"{{ %s | string }}", "ValueError", tooLong},
		"JSON":    {"{{ %s | tojson }}", "ValueError", tooLong},
		"a list":  {"{{ [%s] | tojson }}", "ValueError", tooLong},
		"printf":  {"{{ '%%d' %% %s }}", "ValueError", tooLong},
		"a key":   {"{{ {%s: 1} | length }}", "Limit", key},
		"a tuple": {"{{ {(%s, 1): 1} | length }}", "Limit", key},
		"a name":  {"{{ %s in {'a': 1} }}", "Limit", key},
		"unique":  {"{{ [%s] | unique | list | length }}", "Limit", key},
	} {
		t.Run(name, func(t *testing.T) {
			for _, longest := range []string{"10 ** 4299", "-(10 ** 4299)"} {
				_, err := render(t, fmt.Sprintf(c.source, "("+longest+")"), jinja.Input{})
				require.NoError(t, err)
			}
			for _, longer := range []string{"10 ** 4300", "-(10 ** 4300)", "7 ** 100000"} {
				_, err := render(t, fmt.Sprintf(c.source, "("+longer+")"), jinja.Input{})
				var failed *jinja.RenderError
				require.ErrorAs(t, err, &failed, longer)
				require.Equal(t, c.kind, failed.Kind)
				require.ErrorContains(t, err, c.says)
			}
		})
	}
	out, err := render(t, "{% set n = 10 ** 4299 %}{{ {n: 'a', -n: 'b'}[n * 1] }}{{ (n | tojson) == (n | string) == ('%d' % n) }}{{ ('%x' % 16 ** 4400) | length }}", jinja.Input{})
	require.NoError(t, err)
	require.Equal(t, "aTrue4401", out)
}

func TestMessagesReachTheTemplateAsTheirJSON(t *testing.T) {
	messages := []trajectory.Message{
		trajectory.Text("system", "s <&> \u2028"),
		{Role: "user", Content: []trajectory.Part{{Type: "text", Text: "a"}, {Type: "image", Image: "data:x"}}},
		{Role: "assistant", Reasoning: "hm", ToolCalls: []trajectory.ToolCall{{ID: "1", Name: "f", Arguments: json.RawMessage(`{"b":1.50,"a":12345678901234567890}`)}, {Name: "g"}}},
		{Role: "tool", ToolCallID: "1", Name: "f", Content: []trajectory.Part{{Type: "text", Text: "r"}}},
	}
	tmpl, err := jinja.Compile("{{ messages | tojson }}", jinja.Options{})
	require.NoError(t, err)
	got, err := tmpl.Render(jinja.Input{Messages: messages})
	require.NoError(t, err)
	raw, err := json.Marshal(messages)
	require.NoError(t, err)
	same, err := tmpl.RenderJSON(raw, nil, jinja.Input{})
	require.NoError(t, err)
	require.Equal(t, same, got)
	require.Equal(t, `[{"role": "system", "content": "s <&> `+"\u2028"+`"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "image": "data:x"}]}, `+
		`{"thinking": "hm", "role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", `+
		`"arguments": {"b": 1.5, "a": 12345678901234567890}}}, {"type": "function", "function": {"name": "g", "arguments": {}}}]}, `+
		`{"role": "tool", "content": "r", "tool_call_id": "1", "name": "f"}]`, got)
}

func TestVariablesOfARendering(t *testing.T) {
	in := jinja.Input{AddGenerationPrompt: true, Extra: map[string]any{"enable_thinking": false, "n": 3}, Now: now}
	got, err := render(t, "{{ bos_token }}{{ eos_token is defined }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ enable_thinking }}{{ n + 1 }}{{ strftime_now('%d %b %Y') }}", in)
	require.NoError(t, err)
	require.Equal(t, "<s>FalseNoneNoneTrueFalse407 Mar 2026", got)
	in.Tools = []json.RawMessage{json.RawMessage(`{"b": 1, "a": 2}`)}
	got, err = render(t, "{{ tools }}{{ tools | tojson }}", in)
	require.NoError(t, err)
	require.Equal(t, `[{'b': 1, 'a': 2}][{"b": 1, "a": 2}]`, got)
}

func TestATemplateIsSafeForConcurrentUse(t *testing.T) {
	tmpl, err := jinja.Compile("{% macro m(x) %}{% set y | upper %}{{ x }}{% endset %}{{ y }}{% endmacro %}{% for m2 in messages %}{% filter lower %}{{ m(m2.content) }}{% endfilter %}{% endfor %}", jinja.Options{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := strings.Repeat(string(rune('a'+i)), 50)
			for range 200 {
				got, err := tmpl.Render(jinja.Input{Messages: []trajectory.Message{trajectory.Text("user", text), trajectory.Text("user", text)}})
				if err != nil || got != text+text {
					t.Errorf("got %q, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestUsesTools(t *testing.T) {
	var templates map[string]string
	readGolden(t, "templates.json.gz", &templates)
	for name, want := range map[string]bool{
		"HuggingFaceTB-SmolLM2-135M-Instruct": false, "lenml-llama3": false, "Qwen-Qwen2.5-7B-Instruct": true, "Qwen-Qwen3-0.6B": true,
		"meta-llama-Llama-3.1-8B-Instruct": true, "mistralai-Mistral-Nemo-Instruct-2407": true, "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": true,
	} {
		tmpl, err := jinja.Compile(templates[name], options)
		require.NoError(t, err)
		require.Equal(t, want, tmpl.UsesTools(), name)
	}
}

func FuzzTemplate(f *testing.F) {
	var templates map[string]string
	readGolden(f, "templates.json.gz", &templates)
	for _, source := range templates {
		if len(source) < 3000 {
			f.Add(source)
		}
	}
	var g struct{ Cases [][2]json.RawMessage }
	readGolden(f, "expressions.json.gz", &g)
	for i := 0; i < len(g.Cases); i += 40 {
		var source string
		require.NoError(f, json.Unmarshal(g.Cases[i][0], &source))
		f.Add(source)
	}
	messages := json.RawMessage(`[{"role": "user", "content": "hi é"}, {"role": "assistant", "content": [{"type": "text", "text": "x"}], "n": 1.5, "l": [3, null, true]}]`)
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 1<<16 {
			t.Skip("longer than a fuzzer's templates need to be")
		}
		tmpl, err := jinja.Compile(source, options)
		if err != nil {
			var compile *jinja.CompileError
			if !errors.As(err, &compile) || strings.Contains(err.Error(), "unknown") && !strings.Contains(err.Error(), "unknown tag") {
				t.Fatalf("%q: %v", source, err)
			}
			return
		}
		_, err = tmpl.RenderJSON(messages, nil, jinja.Input{AddGenerationPrompt: true, Now: now, Extra: map[string]any{"d": map[string]any{"s": "x", "n": 7}}})
		var raised *jinja.RaisedError
		var failed *jinja.RenderError
		if err != nil && !errors.As(err, &raised) && !errors.As(err, &failed) {
			t.Fatalf("%q: untyped error %v", source, err)
		}
	})
}
