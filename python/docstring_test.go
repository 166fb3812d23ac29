package python

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocstring(t *testing.T) {
	for name, c := range map[string]struct {
		raw, text string
		arguments map[string]argDoc
	}{
		"empty":      {"", "", nil},
		"one line":   {"Say it.", "Say it.", nil},
		"paragraphs": {"Say it.\n\n    More of it,\n    and more.\n    ", "Say it.\n\nMore of it,\nand more.", nil},
		"arguments": {
			"\n    Say it.\n\n    Args:\n        a (int): One.\n        b_2: Two,\n            and more: of it.\n        *rest (str): Rest.\n        none:\n\n    Returns:\n        c: nothing.\n    ",
			"Say it.",
			map[string]argDoc{"a": {"int", "One."}, "b_2": {"", "Two, and more: of it."}, "rest": {"str", "Rest."}, "none": {"", ""}},
		},
		"tabs":              {"Say it.\n\n\tArgs:\n\t\ta: One.\n\t\t\tMore.\n", "Say it.", map[string]argDoc{"a": {"", "One. More."}}},
		"no description":    {"Args:\n    a: One.", "", map[string]argDoc{"a": {"", "One."}}},
		"section in a text": {"Args: are not here.", "Args: are not here.", nil},
		"after the section": {"Say.\n\nArgs:\n    a: One.\nAnd then\n    b: no argument.", "Say.", map[string]argDoc{"a": {"", "One."}}},
		"two sections":      {"P.\n\nArguments:\n    a: One.\n\nAttributes:\n    b: Two.", "P.", map[string]argDoc{"a": {"", "One."}, "b": {"", "Two."}}},
		"parentheses": {
			"P.\n\nArgs:\n    a (Callable[[int], str], optional): One (1): it.\n    b (dict(str, int)): Two.\n    c(list[str]): Three.\n    d (int):\n        Four.\n\nRaises:\n    ValueError: never.",
			"P.",
			map[string]argDoc{"a": {"Callable[[int], str], optional", "One (1): it."}, "b": {"dict(str, int)", "Two."}, "c": {"list[str]", "Three."}, "d": {"int", "Four."}},
		},
		"paragraphs of an argument": {"P.\n\nArgs:\n    a: One.\n\n        More.\n\n    b: Two.", "P.", map[string]argDoc{"a": {"", "One. More."}, "b": {"", "Two."}}},
		"keyword arguments":         {"P.\n\nArgs:\n    a: One.\n\nKeyword Args:\n    b: Two.\n\nYields:\n    c: no.", "P.", map[string]argDoc{"a": {"", "One."}, "b": {"", "Two."}}},
		"windows":                   {"Say it.\r\n\r\nArgs:\r\n    a: One.\r\n", "Say it.", map[string]argDoc{"a": {"", "One."}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseDocstring(c.raw)
			require.Equal(t, c.text, got.text)
			if c.arguments == nil {
				c.arguments = map[string]argDoc{}
			}
			require.Equal(t, c.arguments, got.arguments)
		})
	}
}

func FuzzDocstring(f *testing.F) {
	f.Add("Say it.\n\nArgs:\n    a (int): One.\n        More.\nReturns:\n    x")
	f.Add("\tArgs:\n\t\t*a: b")
	f.Fuzz(func(t *testing.T, raw string) {
		d := parseDocstring(raw)
		require.LessOrEqual(t, len(d.text), 8*len(raw))
		for name := range d.arguments {
			require.Contains(t, raw, name)
		}
		again := parseDocstring(d.text) // what is a description stays one
		require.Equal(t, strings.TrimSpace(again.text), again.text)
	})
}
