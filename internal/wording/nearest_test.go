package wording

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	known := []string{"calculator", "search", "sea", "ad", "answer", "größe"}
	for name, want := range map[string]string{
		"calculater":                    "calculator", // replaced
		"clculator":                     "calculator", // left out
		"calxulatyz":                    "calculator", // three of ten letters
		"caxxulxxor":                    "",           // four of ten
		"serach":                        "search",     // a swap counts once
		"SEARCH":                        "search",     // in whatever case
		"searches":                      "search",     // continues it
		"calc":                          "calculator", // is continued
		"se":                            "sea",        // one letter
		"ab":                            "ad",         // one of two
		"add":                           "ad",         // and one of three
		"x":                             "",           // nothing is left of it
		"ä":                             "",           //
		"grösse":                        "größe",      // two runes of six
		"":                              "",           //
		"weather":                       "",           //
		strings.Repeat("calculator", 7): "calculator", // too long to compare, but it continues one
		strings.Repeat("z", 200):        "",
	} {
		require.Equal(t, want, Nearest(name, known), name)
	}
	require.Equal(t, "sag", Nearest("sax", []string{"sag", "sad"}), "of equally near ones the first")
	require.Equal(t, "sax", Nearest("sax", []string{"sag", "sax"}))
	require.Empty(t, Nearest("calculator", nil))
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "abc", 0},
		{"kitten", "sitting", 3},
		{"ab", "ba", 1},
		{"ca", "abc", 3}, // a swapped pair is not taken apart again: the unrestricted distance is 2
		{"größe", "grosse", 3},
		{strings.Repeat("a", 64), "a", 63},
		{strings.Repeat("a", 65), "a", math.MaxInt},
	} {
		require.Equal(t, c.want, Distance(c.a, c.b), "%s, %s", c.a, c.b)
		require.Equal(t, c.want, Distance(c.b, c.a), "%s, %s", c.b, c.a)
	}
}
