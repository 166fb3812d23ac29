package agents

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Who tells the model of its tools: the chat template with the schemas, or the system prompt with the format's instructions.
func TestPrompt(t *testing.T) {
	renders, ignores, sends := Template{Renders: true}, Template{Renders: true, IgnoresTools: true}, Template{}
	specs := testSpecs()[:1]
	for name, c := range map[string]struct {
		config   Config
		template Template
		specs    []tools.Spec
		schemas  bool
		system   string // INSTRUCTIONS are the format's
	}{
		"a template that knows the format":    {Config{Format: "mistral", System: "Be brief.", Instructions: true}, renders, specs, true, "Be brief."},
		"no system prompt":                    {Config{Format: "mistral", Instructions: true}, renders, specs, true, ""},
		"a template that ignores tools":       {Config{Format: "mistral", System: "Be brief.", Instructions: true}, ignores, specs, false, "Be brief.\n\nINSTRUCTIONS"},
		"and masks writes them":               {Config{Format: "hermes", Instructions: true}, ignores, specs, true, ""},
		"a format that templates do not know": {Config{Format: "tags", Instructions: true}, renders, specs, false, "INSTRUCTIONS"},
		"an engine that takes messages":       {Config{Format: "hermes", Instructions: true}, sends, specs, false, "INSTRUCTIONS"},
		"and a template that ignores tools":   {Config{Format: "hermes", Instructions: true}, Template{IgnoresTools: true}, specs, false, "INSTRUCTIONS"},
		"no instructions":                     {Config{Format: "hermes", System: "Be brief."}, renders, specs, false, "Be brief."},
		"no tools":                            {Config{Format: "tags", Instructions: true}, renders, nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := NewRegistry().New(t.Context(), nil, c.config, c.specs)
			require.NoError(t, err)
			example := trajectory.Text("user", "1 and 1?")
			p, err := a.Prompt(c.template, []trajectory.Message{example})
			require.NoError(t, err)
			require.Equal(t, c.schemas, p.Schemas != nil)
			if c.schemas {
				require.Len(t, p.Schemas, 1)
				require.Contains(t, string(p.Schemas[0]), `"calculator"`)
			}
			var want []trajectory.Message
			if c.system == "INSTRUCTIONS" {
				want = append(want, trajectory.Text("system", a.Format.Instructions()))
			} else if c.system == "Be brief.\n\nINSTRUCTIONS" {
				want = append(want, trajectory.Text("system", "Be brief.\n\n"+a.Format.Instructions()))
			} else if c.system != "" {
				want = append(want, trajectory.Text("system", c.system))
			}
			require.Equal(t, append(want, example), p.Messages)
		})
	}
}

// wild panics whatever it is asked.
type wild struct{ Format }

func (wild) Instructions() string { panic("no words") }
func (wild) Stops() []string      { panic("no strings") }
func (wild) Marks() []string      { panic("no marks") }

// A panic of a format is an error with its name.
func TestPanicsOfAFormatAreErrors(t *testing.T) {
	r := NewRegistry()
	require.NoError(t, r.AddFormat(FormatSpec{Name: "wild", New: func([]tools.Spec, FormatOptions) (Format, error) { return wild{}, nil }}))
	a, err := r.New(t.Context(), nil, Config{Format: "wild", Instructions: true}, testSpecs())
	require.NoError(t, err)
	_, marks := a.Marks()
	_, stops := a.Stops()
	_, prompt := a.Prompt(Template{Renders: true}, nil)
	for want, err := range map[string]error{"no marks": marks, "no strings": stops, "no words": prompt} {
		var caught *panics.Error
		require.ErrorAs(t, err, &caught)
		require.ErrorContains(t, err, "the format wild panicked: "+want+", at ")
	}
	_, err = r.New(t.Context(), nil, Config{Format: "wilder"}, nil)
	require.ErrorContains(t, err, `agents: there is no format "wilder" (did you mean "wild"?)`)
}

func TestAgentReads(t *testing.T) {
	a, err := NewRegistry().New(t.Context(), nil, Config{Format: "mistral", ObservationRole: "tool"}, testSpecs())
	require.NoError(t, err)
	marks, err := a.Marks()
	require.NoError(t, err)
	require.Equal(t, []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<think>", "</think>"}, marks)
	stops, err := a.Stops()
	require.NoError(t, err)
	require.Empty(t, stops)
	m, err := a.Format.Observe(t.Context(), []trajectory.ToolResult{{Observation: "2"}})
	require.NoError(t, err)
	require.Equal(t, "tool", m[0].Role)
}
