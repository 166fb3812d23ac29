package calculator

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

func TestEvaluate(t *testing.T) {
	for expression, want := range map[string]string{
		"347 + 589":                 "936",
		"347+589":                   "936",
		" 12\t*\n12 ":               "144",
		"347 x 589":                 "204383",
		"3x4":                       "12",
		"10x10 + 0 x 10":            "100",
		"347 × 589":                 "204383",
		"12 ÷ 8":                    "1.5",
		"5 − 7":                     "-2",
		"3·4":                       "12",
		"1/3":                       "1/3",
		"-2/6":                      "-1/3",
		"2/4":                       "0.5",
		"0.1 + 0.2":                 "0.3",
		".5 * 4":                    "2",
		"5. + 1":                    "6",
		"1,234,567 + 1":             "1234568",
		"12,345.5":                  "12345.5",
		"2 + 3 * 4":                 "14",
		"(2 + 3) * 4":               "20",
		"2^10":                      "1024",
		"2**10":                     "1024",
		"2^3^2":                     "512",
		"-2^2":                      "-4",
		"(-2)^2":                    "4",
		"2^-2":                      "0.25",
		"(2/3)^-2":                  "2.25",
		"(-1)^99999999999999999999": "-1",
		"1^99999999999999999999":    "1",
		"0^0":                       "1",
		"2 - -3":                    "5",
		"--2":                       "2",
		"+-+2":                      "-2",
		"7 // 2":                    "3",
		"-7 // 2":                   "-4",
		"7 % 3":                     "1",
		"-7 % 3":                    "2",
		"7 % -3":                    "-2",
		"7.5 % 2":                   "1.5",
		"8 / 2 / 2":                 "2",
		"8 - 2 - 2":                 "4",
		"1/2^30":                    "0.000000000931322574615478515625",
		"1/2^31":                    "1/2147483648",
		"10^30/7*7":                 "1" + strings.Repeat("0", 30),
		strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100): "1",
	} {
		t.Run(expression, func(t *testing.T) {
			got, err := Evaluate(t.Context(), expression)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestEvaluateErrors(t *testing.T) {
	for expression, want := range map[string]string{
		"":                              "the expression is empty; write one such as 12 + 5",
		"  ":                            "the expression is empty; write one such as 12 + 5",
		"1/0":                           "division by zero",
		"1//0":                          "division by zero",
		"1%(2-2)":                       "division by zero",
		"0^-1":                          "division by zero: 0 with a negative exponent",
		"1 +":                           "the expression ends where a number is expected",
		"(1 + 2":                        `the expression ends where ")" is expected`,
		"1 + 2)":                        `found ")" where an operator is expected`,
		"()":                            `found ")" where a number is expected`,
		"* 2":                           `found "*" where a number is expected`,
		"1 2":                           "found the number 2 where an operator is expected",
		"1.2.3":                         "found the number .3 where an operator is expected",
		".":                             `"." is not a number; write one such as 0.5`,
		"12 + 5 = 17":                   `leave out "=": write only what is to be computed, such as 12 + 5`,
		"two + 2":                       `cannot read "two": only numbers, + - * / // % ^ and parentheses are allowed`,
		"2 xy 3":                        `cannot read "xy": only numbers, + - * / // % ^ and parentheses are allowed`,
		"x + 1":                         `found "x" where a number is expected`,
		"2 $ 3":                         `cannot read "$": only numbers, + - * / // % ^ and parentheses are allowed`,
		"1,23 + 1":                      `cannot read the comma after "1": a comma only separates groups of three digits, as in 1,234`,
		"1234,567":                      `cannot read the comma after "1234": a comma only separates groups of three digits, as in 1,234`,
		"0,500 * 2":                     `cannot read the comma after "0": write a decimal point, as in 0.5`,
		"1 + 0,123,456":                 `cannot read the comma after "0": write a decimal point, as in 0.5`,
		"0x10 + 1":                      `cannot read "0x10": numbers are decimal; write a product with *, as in 0 * 10`,
		"0Xff":                          `cannot read "Xff": only numbers, + - * / // % ^ and parentheses are allowed`,
		"2^0.5":                         "the exponent 0.5 is not an integer; only integer exponents are allowed",
		"2^10001":                       "the exponent 10001 is too large; at most 10000 is allowed",
		"10^9999":                       "the number is too large: at most 4931 digits are allowed",
		"9^9^9":                         "the exponent 387420489 is too large; at most 10000 is allowed",
		strings.Repeat("9", 4096) + "1": "the expression has 4097 characters; at most 4096 are allowed",
		strings.Repeat("(", 200) + "1":  "the expression is nested deeper than 100 levels",
		strings.Repeat("-", 200) + "1":  "the expression is nested deeper than 100 levels",
		"\xff":                          `cannot read "` + "\uFFFD" + `": only numbers, + - * / // % ^ and parentheses are allowed`,
	} {
		t.Run(clip(expression), func(t *testing.T) {
			_, err := Evaluate(t.Context(), expression)
			require.EqualError(t, err, want)
		})
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Evaluate(ctx, "1 + 1")
	require.ErrorIs(t, err, context.Canceled)
}

// tree is a random expression with its value, computed beside the parser.
type tree struct {
	text string
	v    *big.Rat
	prec int // 0 sum, 1 product, 2 number or parentheses
}

func grow(r *rand.Rand, depth int) tree {
	if depth == 0 || r.IntN(4) == 0 {
		n, decimals := r.IntN(2000), r.IntN(3)
		text := fmt.Sprint(n)
		if decimals > 0 {
			text = fmt.Sprintf("%d.%0*d", n, decimals, r.IntN(10))
		}
		v, _ := new(big.Rat).SetString(text)
		return tree{text, v, 2}
	}
	a, b := grow(r, depth-1), grow(r, depth-1)
	wrap := func(t tree, least int) string {
		if t.prec < least || r.IntN(8) == 0 {
			return "(" + t.text + ")"
		}
		return t.text
	}
	out := new(big.Rat)
	switch op := r.IntN(5); {
	case op == 0:
		return tree{wrap(a, 0) + " + " + wrap(b, 1), out.Add(a.v, b.v), 0}
	case op == 1:
		return tree{wrap(a, 0) + "-" + wrap(b, 1), out.Sub(a.v, b.v), 0}
	case op == 2 && b.v.Sign() != 0:
		return tree{wrap(a, 1) + "/" + wrap(b, 2), out.Quo(a.v, b.v), 1}
	case op == 3 && a.v.Num().BitLen() < 200 && a.v.Denom().BitLen() < 200:
		out.SetInt64(1)
		n := r.IntN(5)
		for range n {
			out.Mul(out, a.v)
		}
		return tree{fmt.Sprintf("(%s)^%d", a.text, n), out, 1}
	default:
		return tree{wrap(a, 1) + " * " + wrap(b, 2), out.Mul(a.v, b.v), 1}
	}
}

// The twin computes each random tree with big.Rat while it writes the text.
func TestEqualsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		x := grow(r, 5)
		got, err := Value(t.Context(), x.text)
		require.NoError(t, err, x.text)
		require.Zero(t, got.Cmp(x.v), "%s: got %s, want %s", x.text, got, x.v)
	}
}

// Format is read back to the same number, by big.Rat and by the parser.
func TestFormatRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 2000 {
		v := big.NewRat(r.Int64N(2e6)-1e6, 1+r.Int64N(5000))
		text := Format(v)
		back, ok := new(big.Rat).SetString(text)
		require.True(t, ok, text)
		require.Zero(t, back.Cmp(v), text)
		parsed, err := Value(t.Context(), text)
		require.NoError(t, err)
		require.Zero(t, parsed.Cmp(v), text)
	}
}

func TestFloorAndRemainder(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 2000 {
		a, b := r.Int64N(4001)-2000, r.Int64N(81)-40
		if b == 0 {
			continue
		}
		q, err := Value(t.Context(), fmt.Sprintf("%d // %d", a, b))
		require.NoError(t, err)
		m, err := Value(t.Context(), fmt.Sprintf("(%d) %% %d", a, b))
		require.NoError(t, err)
		require.True(t, q.IsInt() && m.IsInt())
		require.Equal(t, a, q.Num().Int64()*b+m.Num().Int64())
		require.True(t, m.Sign() == 0 || (m.Sign() < 0) == (b < 0), "remainder %s of %d, %d", m, a, b)
		require.Less(t, new(big.Int).Abs(m.Num()).Int64(), max(b, -b))
	}
}

func TestTool(t *testing.T) {
	r := tools.NewRegistry(tools.Options{})
	require.NoError(t, r.Register(New()))
	require.JSONEq(t, `{"type":"object","properties":{"expression":{"type":"string","description":"numbers with + - * / // % ^ and parentheses, such as (12 + 5) * 3"}},"required":["expression"],"additionalProperties":false}`,
		string(r.Specs()[0].Parameters))
	call := func(arguments string) string {
		return r.Invoke(t.Context(), "t", trajectory.ToolCall{Name: "calculator", Arguments: json.RawMessage(arguments)}).Observation
	}
	require.Equal(t, "936", call(`{"expression": "347 + 589"}`))
	require.Equal(t, "Error: division by zero", call(`{"expression": "1 / 0"}`))
	require.Equal(t, `Error: calculator: the argument "expression" must be a string, got the number 12; the arguments are {"expression": string}`, call(`{"expression": 12}`))
	require.Equal(t, `Error: calculator: there is no argument "expresion" (did you mean "expression"?); the arguments are {"expression": string}`, call(`{"expresion": "1"}`))
	require.Equal(t, `Error: calculator: the argument "expression" is missing; the arguments are {"expression": string}`, call(`{}`))
}

func FuzzEvaluate(f *testing.F) {
	for _, s := range []string{"347 + 589", "1/3", "2^3^2", "1,234 // 5 % 2", "-(2.5 × 4) ÷ 3", "9^9^9", "((((", "1e5", "\xff−"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		v, err := Value(t.Context(), expression)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		text := Format(v)
		back, ok := new(big.Rat).SetString(text)
		require.True(t, ok, text)
		require.Zero(t, back.Cmp(v))
		if len(text) <= maxLength && new(big.Rat).Abs(v).Denom().BitLen() < maxBits/2 {
			again, err := Value(t.Context(), text)
			require.NoError(t, err, text)
			require.Zero(t, again.Cmp(v))
		}
	})
}
