package jinja_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
)

// now is the time that scripts/goldens/templates.py freezes.
var now = time.Date(2026, 3, 7, 4, 5, 6, 789000, time.UTC)

var options = jinja.Options{BOSToken: "<s>", EOSToken: "</s>", Specials: map[string]string{"pad_token": "<pad>"}}

func readGolden(t testing.TB, name string, into any) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, into))
}

type goldens struct {
	Conversations []json.RawMessage
	Tools         []json.RawMessage
	Extras        []map[string]any
	Renders       map[string][][]json.RawMessage
}

type failure struct{ Error, Message string }

// check compares one rendering with Python's: the same text, or an error of the same kind.
func check(got string, err error, want json.RawMessage) error {
	var text string
	if json.Unmarshal(want, &text) == nil {
		switch {
		case err != nil:
			return fmt.Errorf("Python renders it, here: %w", err)
		case got != text:
			i := 0
			for i < len(got) && i < len(text) && got[i] == text[i] {
				i++
			}
			return fmt.Errorf("differs at byte %d: got %.120q, want %.120q", i, got[i:], text[i:])
		}
		return nil
	}
	var f failure
	if e := json.Unmarshal(want, &f); e != nil {
		return e
	}
	if err == nil {
		return fmt.Errorf("Python raises %s: %s; here it renders %.200q", f.Error, f.Message, got)
	}
	var raised *jinja.RaisedError
	if errors.As(err, &raised) {
		if f.Error != "TemplateError" || f.Message != raised.Message {
			return fmt.Errorf("Python raises %s: %s; here %w", f.Error, f.Message, err)
		}
		return nil
	}
	var failed *jinja.RenderError
	if !errors.As(err, &failed) || failed.Kind != f.Error {
		return fmt.Errorf("Python raises %s: %s; here %w", f.Error, f.Message, err)
	}
	return nil
}

func TestRealTemplatesRenderAsInPython(t *testing.T) {
	var g goldens
	var templates map[string]string
	readGolden(t, "goldens.json.gz", &g)
	readGolden(t, "templates.json.gz", &templates)
	require.Len(t, g.Renders, len(templates))
	names := make([]string, 0, len(templates))
	for name := range templates {
		names = append(names, name)
	}
	sort.Strings(names)
	total := 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			tmpl, err := jinja.Compile(templates[name], options)
			require.NoError(t, err)
			for _, r := range g.Renders[name] {
				var c, tools, extra int
				var prompt bool
				require.NoError(t, json.Unmarshal(r[0], &c))
				require.NoError(t, json.Unmarshal(r[1], &tools))
				require.NoError(t, json.Unmarshal(r[2], &prompt))
				require.NoError(t, json.Unmarshal(r[3], &extra))
				got, err := tmpl.RenderJSON(g.Conversations[c], g.Tools[tools], jinja.Input{
					AddGenerationPrompt: prompt, Extra: g.Extras[extra], Now: now,
				})
				if bad := check(got, err, r[4]); bad != nil {
					t.Errorf("conversation %d, tools %d, prompt %v, extra %d: %v", c, tools, prompt, extra, bad)
				}
				total++
			}
		})
	}
	t.Logf("%d renderings of %d templates", total, len(templates))
}
