package grammar_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/grammar"
)

// finite is an expression with all of its texts: the dumb twin.
type finite struct {
	expr  grammar.Expr
	texts map[string]bool
}

// someFinite draws an expression over a few letters.
func someFinite(r *rand.Rand, depth int) finite {
	const letters = "abé\""
	if depth == 0 || r.IntN(5) == 0 {
		chars := []rune(letters)
		n := r.IntN(3)
		var b strings.Builder
		for range n {
			b.WriteRune(chars[r.IntN(len(chars))])
		}
		return finite{grammar.Text(b.String()), map[string]bool{b.String(): true}}
	}
	switch r.IntN(3) {
	case 0:
		x, y := someFinite(r, depth-1), someFinite(r, depth-1)
		return finite{grammar.Sequence(x.expr, y.expr), product(x.texts, y.texts)}
	case 1:
		x, y := someFinite(r, depth-1), someFinite(r, depth-1)
		all := map[string]bool{}
		for s := range x.texts {
			all[s] = true
		}
		for s := range y.texts {
			all[s] = true
		}
		rule := grammar.NewRule("choice")
		rule.Define(grammar.Choice(x.expr, y.expr))
		return finite{rule.Expr(), all}
	default:
		x := someFinite(r, depth-1)
		least := r.IntN(3)
		most := least + r.IntN(2)
		all, power := map[string]bool{}, map[string]bool{"": true}
		for i := range most + 1 {
			if i >= least {
				for s := range power {
					all[s] = true
				}
			}
			power = product(power, x.texts)
		}
		return finite{grammar.Repeat(x.expr, least, most), all}
	}
}

func product(x, y map[string]bool) map[string]bool {
	out := map[string]bool{}
	for a := range x {
		for b := range y {
			out[a+b] = true
		}
	}
	return out
}

// A token may come next if and only if the text with it begins a text of the expression, and the end if and only if it is one.
func TestAllowedIsWhatGoesOn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	masks := 0
	for range 400 {
		f := someFinite(r, 4)
		if len(f.texts) > 2000 {
			continue
		}
		g := compile(t, f.expr)
		begun := func(text string) bool {
			for s := range f.texts {
				if strings.HasPrefix(s, text) {
					return true
				}
			}
			return false
		}
		for range 4 {
			m, text := g.Match(), ""
			for {
				mask, end, err := m.Allowed()
				require.NoError(t, err)
				require.Equal(t, f.texts[text], end, "%q", text)
				masks++
				var next []int32
				for id := range int32(texts.Size()) {
					want := !texts.IsSpecial(id) && begun(text+string(texts.Bytes(id)))
					if want != has(mask, id) {
						require.Equal(t, want, has(mask, id), "%q behind %q", texts.Bytes(id), text)
					}
					if want {
						next = append(next, id)
					} else if m.Take(id) == nil {
						require.Fail(t, "taken", "%q behind %q", texts.Bytes(id), text)
					}
				}
				if len(next) == 0 {
					break
				}
				id := next[r.IntN(len(next))]
				require.NoError(t, m.Take(id))
				text += string(texts.Bytes(id))
			}
		}
	}
	require.Greater(t, masks, 2000)
}

func TestSpecialTokensAreNoText(t *testing.T) {
	special := int32(texts.Size() - 1)
	g := compile(t, grammar.Sequence(grammar.Special("[TOOL_CALLS]"), grammar.Text("x")))
	m := g.Match()
	mask, end, err := m.Allowed()
	require.NoError(t, err)
	require.False(t, end)
	require.True(t, has(mask, special))
	require.False(t, has(mask, '['))
	require.NoError(t, m.Take(special))
	require.NoError(t, m.Take('x'))
	_, end, err = m.Allowed()
	require.NoError(t, err)
	require.True(t, end)

	g = compile(t, grammar.Text("[TOOL_CALLS]"))
	mask, _, err = g.Match().Allowed()
	require.NoError(t, err)
	require.False(t, has(mask, special))
	require.True(t, has(mask, '['))
	require.False(t, has(mask, special))
}

func TestUntil(t *testing.T) {
	for _, end := range []string{"</a>", "aab", "aaa", "abab", "x"} {
		g := compile(t, grammar.Sequence(grammar.Until(end), grammar.Text("!")))
		r := rand.New(rand.NewPCG(3, uint64(len(end))))
		alphabet := []rune(end + "é!<")
		for range 3000 {
			var b strings.Builder
			for range r.IntN(9) {
				b.WriteRune(alphabet[r.IntN(len(alphabet))])
			}
			if r.IntN(2) == 0 {
				b.WriteString(end + "!")
			}
			text := b.String()
			_, rest, found := strings.Cut(text, end)
			require.Equal(t, found && rest == "!", matches(t, g, text), "%q until %q", text, end)
		}
	}
}

// JSON is held against encoding/json: what is read is an object, and objects written by encoding/json are read.
func TestJSONIsJSON(t *testing.T) {
	g := compile(t, grammar.JSON())
	for text, want := range map[string]bool{
		`{}`: true, `{"a":1}`: true, `{"a": [1, 2.5e-3, -0], "b": {"c": null}}`: true, "{\n  \"a\": true\n}": true, `{"é\u00e9\ud83d\ude00\n": "\"" }`: true,
		`[]`: false, `{"a":01}`: false, `{"a":1,}`: false, `{'a':1}`: false, `{"a" :1}`: false, "{\"a\": \"\n\"}": false, `{"\ud800": 1}`: false, `{"a": "` + "\xff" + `"}`: false,
		`{"a": "` + "\xed\xa0\x80" + `"}`: false, `{"\x": 1}`: false, `{"a": 1} `: false,
	} {
		require.Equal(t, want, matches(t, g, text), "%q", text)
	}
}

func TestRefusedExpressions(t *testing.T) {
	v := grammar.NewVocabulary(texts)
	itself := grammar.NewRule("loop")
	itself.Define(grammar.Choice(grammar.Text("a"), grammar.Sequence(grammar.Optional(grammar.Text("b")), itself.Expr())))
	tail := grammar.NewRule("tail")
	tail.Define(tail.Expr())
	undefined := grammar.NewRule("nobody")
	big := grammar.Repeat(grammar.Sequence(grammar.Text("ab"), grammar.Text("cd")), 0, 1<<20)
	var deep grammar.Expr
	for range 5000 {
		deep = grammar.Sequence(grammar.Text("a"), grammar.Choice(deep, grammar.Text("b")))
	}
	for _, c := range []struct {
		want string
		expr grammar.Expr
	}{
		{"loop comes to itself before anything is written", itself.Expr()},
		{"tail comes to itself before anything is written", tail.Expr()},
		{"the rule nobody is not defined", grammar.Sequence(grammar.Text("a"), undefined.Expr())},
		{"it is too large", big},
		{"it is nested more than 1000 deep", deep},
		{"no text has this form, or the vocabulary has no tokens for it", grammar.Choice()},
		{"behind 0 tokens the vocabulary has none that the form goes on with", grammar.Special("[NOBODY]")},
	} {
		_, err := grammar.Compile(c.expr, v)
		require.ErrorContains(t, err, c.want, c.want)
	}
}

// An expression whose states are without bound does not hold the engine up, nor does it fill the memory.
func TestCostlyExpressionsAreRefused(t *testing.T) {
	// The number of ways doubles with the repetitions that can stand for the same text.
	e := grammar.Text("a")
	for range 14 {
		e = grammar.Choice(grammar.Repeat(e, 0, 300), grammar.Sequence(grammar.Text("a"), grammar.Repeat(grammar.Text("a"), 0, 300)))
	}
	g, err := grammar.Compile(e, grammar.NewVocabulary(texts))
	if err == nil {
		m := g.Match()
		for range 2000 {
			if err = m.Take('a'); err != nil {
				break
			}
			if _, _, err = m.Allowed(); err != nil {
				break
			}
		}
	}
	require.ErrorIs(t, err, grammar.ErrCostly)
}

// Patterns are held against Go's own regexp.
func TestPatternsMatchWhatRegexpMatches(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, pattern := range []string{
		`^a+$`, `ab`, `^ab`, `ab$`, `^(a|bc)*$`, `^[^a]$`, `(^a|b$)`, `^a{2,3}b?$`, `^\w+ \d$`, `^(?i)aB$`, `^["\\\n]{2}$`, `^.é?$`, `^$`, `a.c`, `^[\x00-\x1f]$`,
	} {
		schema := `{"type": "string", "pattern": ` + quote(t, pattern) + `}`
		e, err := grammar.JSONSchema([]byte(schema))
		require.NoError(t, err, pattern)
		g := compile(t, e)
		re := regexp.MustCompile(pattern)
		alphabet := []rune("abcAB1 é\"\\\n\x01_")
		hits := 0
		for range 4000 {
			var b strings.Builder
			for range r.IntN(5) {
				b.WriteRune(alphabet[r.IntN(len(alphabet))])
			}
			want := re.MatchString(b.String())
			if want {
				hits++
			}
			require.Equal(t, want, matches(t, g, quote(t, b.String())), "%q with %q", pattern, b.String())
		}
		require.Positive(t, hits, pattern)
	}
}
