package agents

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
)

func newWordy([]tools.Spec, FormatOptions) (Format, error) { return wordy{}, nil }

// What the formats of this package declare, in one table; vLLM's names are those of its ToolParserManager.
func TestDeclarations(t *testing.T) {
	r := NewRegistry()
	require.Equal(t, []string{"tool_call", "action", "code", "custom", "external", "react", "search_r1"}, r.KindNames())
	formats := map[string][]string{}
	for _, name := range r.KindNames() {
		k, ok := r.Kind(name)
		require.True(t, ok)
		require.NotEmpty(t, k.Description, name)
		require.NotContains(t, k.Description, "\n")
		if names := r.FormatNames(name); len(names) > 0 {
			require.Equal(t, k.Format.Name, names[0])
			formats[name] = names
		}
	}
	require.Equal(t, map[string][]string{
		"tool_call": {"hermes", "llama3_json", "mistral", "qwen3_coder", "tags"},
		"action":    {"action"}, "code": {"fenced"}, "react": {"react"}, "search_r1": {"search_r1"},
	}, formats)

	parsers, inTemplates, inRenderer, oneTool := map[string]string{}, []string{}, []string{}, []string{}
	for _, names := range formats {
		for _, name := range names {
			s, ok := r.Format(name)
			require.True(t, ok)
			require.NotEmpty(t, s.Description, name)
			require.NotContains(t, s.Description, "\n")
			for _, p := range s.Parsers {
				parsers[p] = name
			}
			for _, flag := range []struct {
				on   bool
				into *[]string
			}{{s.InTemplates, &inTemplates}, {s.InRenderer, &inRenderer}, {s.OneTool, &oneTool}} {
				if flag.on {
					*flag.into = append(*flag.into, name)
				}
			}
		}
	}
	require.Equal(t, map[string]string{
		"hermes": "hermes", "qwen3_json": "hermes", "llama3_json": "llama3_json", "llama4_json": "llama3_json", "mistral": "mistral",
		"qwen3_coder": "qwen3_coder", "qwen3_xml": "qwen3_coder",
	}, parsers)
	require.ElementsMatch(t, []string{"hermes", "llama3_json", "mistral", "qwen3_coder"}, inTemplates)
	require.Equal(t, []string{"hermes"}, inRenderer)
	require.ElementsMatch(t, []string{"action", "fenced", "search_r1"}, oneTool)
	s, ok := r.Parser("qwen3_xml")
	require.True(t, ok)
	require.Equal(t, "qwen3_coder", s.Name)
	_, ok = r.Parser("qwen4")
	require.False(t, ok)
}

// A format's name stands in its own file: whoever adds a format adds a file, and edits none.
func TestAFormatIsNamedInItsOwnFileOnly(t *testing.T) {
	own := map[string]string{
		"action": "agents/action.go", "fenced": "agents/fenced.go", "hermes": "agents/hermes.go", "llama3_json": "agents/llama.go", "mistral": "agents/mistral.go",
		"qwen3_coder": "agents/qwen.go", "react": "agents/react.go", "search_r1": "agents/search_r1.go", "tags": "agents/tags.go",
	}
	require.Len(t, own, len(NewRegistry().formats))
	found := map[string]string{}
	for _, dir := range []string{"agents", "serve", "orchestrator", "tools", "masks", "cli", "."} { // not rewards and modelfile, which name rewards and models
		root := filepath.Join("..", dir)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err) && path == root:
				return nil
			case err != nil:
				return err
			case d.IsDir() && (dir == "." && path != root || d.Name() == "rollouttest"): // helpers of tests
				return filepath.SkipDir
			case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for name := range own {
				if strings.Contains(string(text), `"`+name+`"`) {
					found[name] += filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	require.Equal(t, own, found)
}

// A kind and a format of a program's own are in every list that theirs are in.
func TestRegistryOfAProgram(t *testing.T) {
	r := NewRegistry()
	require.NoError(t, r.AddKind(Kind{Name: "words", Description: "talks", Format: FormatSpec{Parsers: []string{"words_v1"}, New: newWordy}}))
	require.NoError(t, r.AddFormat(FormatSpec{Name: "loud", Kind: "words", Description: "shouts", Parsers: []string{"loud"}, New: newWordy}))
	require.NoError(t, r.AddFormat(FormatSpec{Name: "mine", New: newWordy}))
	require.NoError(t, r.AddFormat(FormatSpec{Name: "again", Kind: "tool_call", New: newWordy}))
	require.Contains(t, r.KindNames(), "words")
	require.Equal(t, []string{"words", "loud"}, r.FormatNames("words"))
	require.Equal(t, []string{"mine"}, r.FormatNames(Custom))
	require.Equal(t, []string{"hermes", "again", "llama3_json", "mistral", "qwen3_coder", "tags"}, r.FormatNames("tool_call"))
	s, _ := r.Format("words")
	require.Equal(t, "words", s.Kind)
	require.Equal(t, "talks", s.Description)
	require.Contains(t, r.Parsers(), "words_v1")
	s, ok := r.Parser("loud")
	require.True(t, ok)
	require.Equal(t, "loud", s.Name)
	f, err := r.NewFormat("loud", nil, FormatOptions{})
	require.NoError(t, err)
	require.Equal(t, wordy{}, f)

	for want, err := range map[string]error{
		`agents: register kind "words": the name is already registered; give the new one another name`:                                                                    r.AddKind(Kind{Name: "words", Format: FormatSpec{New: newWordy}}),
		`agents: register kind "a b": a name has 1 to 64 letters, digits, _ or -`:                                                                                         r.AddKind(Kind{Name: "a b", Format: FormatSpec{New: newWordy}}),
		`agents: register kind "empty": its format has no factory; set Format.New`:                                                                                        r.AddKind(Kind{Name: "empty"}),
		`agents: register kind "other": its own format says that it is of kind "react"; leave Format.Kind out`:                                                            r.AddKind(Kind{Name: "other", Format: FormatSpec{Kind: "react", New: newWordy}}),
		`agents: register format "hermes": the name is already registered; give the new one another name`:                                                                 r.AddKind(Kind{Name: "new", Format: FormatSpec{Name: "hermes", New: newWordy}}),
		`agents: register format "x": the parser "qwen3_xml" is that of qwen3_coder already; leave it out`:                                                                r.AddFormat(FormatSpec{Name: "x", Parsers: []string{"x", "qwen3_xml"}, New: newWordy}),
		`agents: register format "x": there is no kind "reakt" (did you mean "react"?); the kinds are tool_call, action, code, custom, external, react, search_r1, words`: r.AddFormat(FormatSpec{Name: "x", Kind: "reakt", New: newWordy}),
	} {
		require.EqualError(t, err, want)
	}
	_, ok = r.Kind("new")
	require.False(t, ok, "a kind whose format is refused is not there")
	require.NotContains(t, r.Parsers(), "x", "nor is half a format")
}
