package mathequal

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type pair struct {
	Gold, Answer, Reason string
	Equal, Oracle        bool
}

func readPairs(t testing.TB) []pair {
	data, err := os.ReadFile("testdata/pairs.json") // by scripts/goldens/math_pairs.sh
	require.NoError(t, err)
	var pairs []pair
	require.NoError(t, json.Unmarshal(data, &pairs))
	return pairs
}

// TestPairs holds the table of pairs, in both orders; a verdict that an oracle disputes carries its reason.
func TestPairs(t *testing.T) {
	pairs := readPairs(t)
	require.GreaterOrEqual(t, len(pairs), 200)
	for _, p := range pairs {
		require.Equal(t, p.Equal, Equal(p.Gold, p.Answer, Options{}), "%s ;; %s", p.Gold, p.Answer)
		require.Equal(t, p.Equal, Equal(p.Answer, p.Gold, Options{}), "%s ;; %s", p.Answer, p.Gold)
		require.True(t, Equal(p.Gold, p.Gold, Options{}), p.Gold)
		require.Equal(t, p.Equal != p.Oracle, p.Reason != "", "%s ;; %s", p.Gold, p.Answer)
	}
}

// The page of rewards tells how many pairs there are, and of how many the oracle says otherwise, in one place.
func TestThePageTellsHowManyPairs(t *testing.T) {
	pairs, disputed := readPairs(t), 0
	for _, p := range pairs {
		if p.Equal != p.Oracle {
			disputed++
		}
	}
	page, err := os.ReadFile("../../docs/rewards.md")
	require.NoError(t, err)
	told := regexp.MustCompile(`(\d+) pairs`).FindAllStringSubmatch(string(page), -1)
	require.Equal(t, [][]string{{fmt.Sprintf("%d pairs", len(pairs)), strconv.Itoa(len(pairs))}}, told)
	require.Contains(t, strings.Join(strings.Fields(string(page)), " "), fmt.Sprintf("for each of the %d where math-verify", disputed))
}

func TestTolerance(t *testing.T) {
	for _, c := range []struct {
		a, b      string
		tolerance float64
		want      bool
	}{
		{"1/3", "0.333", 2e-3, true},
		{"1/3", "0.33", 1e-3, false},
		{`\pi`, "3.14159", 1e-5, true},
		{`\pi`, "3.1415", 1e-5, false},
		{`5\text{ cm}`, "4.999 cm", 1e-3, true},
		{"(1/3, 2)", "(0.3333, 2)", 1e-3, true},
		{"0", "0.0001", 1e-3, false},
		{"x/3", "0.3333x", 1e-3, false}, // expressions with variables are compared exactly
	} {
		require.Equal(t, c.want, Equal(c.a, c.b, Options{Tolerance: c.tolerance}), "%s ;; %s", c.a, c.b)
		require.Equal(t, c.want, Equal(c.b, c.a, Options{Tolerance: c.tolerance}), "%s ;; %s", c.b, c.a)
	}
}

// answerOf is the likeliest answer that a text gives.
func answerOf(text string) string { return Answers(text)[0] }

func TestExtract(t *testing.T) {
	for text, want := range map[string]string{
		`So \boxed{42}.`: "42",
		`First \boxed{1}, no: \boxed{\frac{1}{2}} it is.`: `\frac{1}{2}`,
		`\boxed{\text{a } \{1\}}`:                         `\text{a } \{1\}`,
		`\fbox{7}`:                                        "7",
		`\boxed 5.`:                                       "5",
		`\boxed{1`:                                        "1",
		"I think 3, but then 4.\nThe final answer is $\\frac{1}{2}$.":   `$\frac{1}{2}$.`,
		"The answer is 12. I hope it is correct.":                       "12",
		"Final answer: x = 3.5":                                         "x = 3.5",
		"The final answer is:\n\n$$\n42\n$$":                            "$$\n42\n$$",
		"The answer is\n\\[\n\\frac{1}{2}\n\\]\nbecause x = 3. So.":     "\\[\n\\frac{1}{2}\n\\]",
		"The answer is \\(\nx = 1.5\n\\). It is odd.":                   "\\(\nx = 1.5\n\\)",
		"The answer is \\(x=1\\) or \\(x=2\\).":                         `\(x=1\) or \(x=2\).`,
		"The answer is $$1. 2$$":                                        "$$1. 2$$",
		"The answer is $5. I hope it is correct.":                       "$5",
		"The answer is $5\nand not $6":                                  "$5",
		"The answer is \\$5. Not \\$6.":                                 `\$5`,
		"**Answer:** 42":                                                "42",
		"**Final Answer:**\n\n42\nQED":                                  "42",
		"**Answer**: x + 1":                                             "x + 1",
		"__Answer__: x + 1":                                             "x + 1",
		"**Answer: 42**":                                                "42",
		"**Answer**\n\nIsabella has 42 apples.":                         "42",
		"**Answer**\n\nIs it 42?":                                       "42",
		"**Answer**\nIsaac needs 42 coins.":                             "42",
		"Answer\n\nIs it so? It is 42.":                                 "42",
		"The answer isn't even, it ends in 3":                           "3",
		"The answer\nis x + 1.":                                         "x + 1.",
		"The **answer** is\nx + 1.":                                     "x + 1.",
		"_The answer is_ x + 1":                                         "x + 1",
		"**Final answer**\n: x + 1":                                     "x + 1",
		"ANSWER IS x + 1":                                               "x + 1",
		"The answer is: x + 1":                                          "x + 1",
		"Answer: is x + 1":                                              "is x + 1",
		"**The final answer is 42.**":                                   "42",
		"The answer is **x + 1**.":                                      "x + 1",
		"The answer is *even*":                                          "even",
		"The answer is **x + 1**, since 6*7=42.":                        "x + 1",
		"The answer is **42** apples.":                                  "42 apples",
		"The answer is **5** or **6**, as said":                         "5 or 6, as said",
		"**x + 1** and **2x**. Answer: **(C)** because 2*3*4":           "(C)",
		"The answer is z^*":                                             "z^*",
		"The answer is a_":                                              "a_",
		"The answer is 2 * 3 * x":                                       "2 * 3 * x",
		"* The answer is 5*x* y":                                        "5*x* y",
		"So x* is best. The answer is z*":                               "z*",
		"**So the answer is 42**, since 6*7=42.":                        "42",
		"**Answer:** **42**, because 6*7=42":                            "42",
		"**Answer: x + 1.** It holds. So.":                              "x + 1",
		"The answer is __x + 1__, which is_it.":                         "x + 1",
		"The answer is ***x + 1***, which is.":                          "x + 1",
		"The answer is **2*(x+1)**, which is.":                          "2*(x+1)",
		"936":                                                           "936",
		`\frac{1}{2}`:                                                   `\frac{1}{2}`,
		"Paris":                                                         "Paris",
		"We get $a = 3$ and hence $b = 4$ at the end of this long text": "b = 4",
		"There are 12 boys, 13 girls, thus 25 children altogether":      "25",
		"":                                  "",
		"nothing to be found anywhere here": "nothing to be found anywhere here",
	} {
		require.Equal(t, want, answerOf(text), text)
	}
}

// TestExtractedIsRead holds layouts of final answers against the answer that stands in them.
func TestExtractedIsRead(t *testing.T) {
	for _, layout := range []string{
		"The final answer is:\n\n$$\n%s\n$$", "The answer is\n\\[\n%s\n\\]", "**Answer:** %s", "**Final Answer:** \\(%s\\)", "**Answer: %s**",
		"The answer is **%s**.", "The answer is **%s** apples.", "The answer is **%s**, since 6*7=42.", "**Answer: %s** (see above)", "**The final answer is $%s$.**", "Answer: \\(%s\\) apples", "The answer is \\[%s.\\]\nQED",
	} {
		for _, answer := range []string{"42", `\frac{1}{2}`} {
			text := strings.ReplaceAll(layout, "%s", answer)
			require.True(t, Equal(answer, answerOf(text), Options{}), text)
			require.False(t, Equal("43", answerOf(text), Options{}), text)
		}
	}
	for _, text := range []string{"The answer is **5** million.", "The answer is **5000** thousand", `The answer is **5** $\cdot 10^6$.`} {
		require.True(t, Equal("5000000", answerOf(text), Options{}), text)
		require.False(t, Equal("5", answerOf(text), Options{}), text)
	}
	for _, text := range []string{"The answer is **5** or **6**.", "**Answer:** **5**, **6**"} {
		require.True(t, Equal("5, 6", answerOf(text), Options{}), text)
		require.False(t, Equal("5", answerOf(text), Options{}), text)
	}
	require.True(t, Equal("1, 2", answerOf(`The answer is \(x=1\) or \(x=2\).`), Options{}))
}

// TestSentences holds short sentences against the answer that they give, and against those that they do not give.
func TestSentences(t *testing.T) {
	for _, c := range []struct {
		text, right string
		wrong       []string
	}{
		{"The age of Bob is 25.", "25", []string{"5"}},
		{"She has 25 apples left.", "25", []string{"25 boxes", "26"}},
		{"Tim has 25 toys.", "25 toys", []string{"25 cars"}},
		{"Sam has 25.", "25", nil},
		{"Sam has 25 cm.", "0.25 m", []string{"25 m"}},
		{"His age is 25.", "25", nil},
		{"The sum is 25.", "25", nil},
		{"We get 25.", "25", nil},
		{"So x = 25.", "25", []string{"y = 25"}},
		{"So, x = 25", "x = 25", []string{"y = 25"}},
		{"Thus, 25.", "25", nil},
		{"Tom is 20 years old.", "20", []string{"20 cm"}},
		{"Tom = 20", "20", nil},
		{"sum = 20", "20", nil},
		{"Each one got 25.", "25", nil},
		{"I get 5 as the sum", "5", nil},
		{"So $x = 5$.", "5", nil},
		{"The answer is **5** for Bob.", "5", nil},
		{"The answer is **5** as he said", "5", nil},
		{"The answer is 5 because 2+3=5.", "5", []string{"2", "3"}},
		{"The answer is 5, since 2+3 = 5.", "5", nil},
		{"The answer is 5 - that is all.", "5", nil},
		{"The correct answer is (B) 5.", "5", []string{"6"}},
		{"The final answer is 5?", "5", nil},
		{"The answer is 5 for Bob.", "5", nil},
		{"The answer is x + 1 because 2x is even.", "x + 1", []string{"1", "x", "2x"}},
		{"The answer is x + 1 (see above).", "x + 1", []string{"1", "x"}},
		{"The answer is $x + 1$ because it is.", "x + 1", []string{"1"}},
		{"The answer is (1, 2), since 1 < 2.", "(1, 2)", []string{"(2, 1)", "1"}},
		{"The answer is f(x) (see above)", "f(x)", []string{"f"}},
		{"The answer is 5 - x", "5 - x", []string{"5"}},
		{"The answer is 5 - x (see above)", "5 - x", []string{"5"}},
		{"The answer is 5 - 3 = 2 of them here", "5 - 3 = 2 of them here", []string{"5", "2"}},
		{"The answer is 3 (mod 7)", "3 (mod 7)", []string{"3", "21"}},
		{"The answer is 31 (base 8)", "31 (base 8)", []string{"31", "248"}},
		{"The answer is 5 or 6, since 2+3 = 5.", "5, 6", []string{"5", "6"}},
		{"The answer is 5, as said", "5", nil},
		{"The answer is at least 5, since 2+3 = 5", "at least 5, since 2+3 = 5", []string{"5"}},
		{"The answer is New York (the city)", "New York (the city)", nil},
		{"The answer is (A) - 5", "A - 5", []string{"5", "-5"}},
		{"The answer is x (x + 1)", "x^2 + x", []string{"x"}},
		{"The answer is not 5 because 2+3=5.", "not 5 because 2+3=5", []string{"5"}},
		{"The answer is (C) because 2*3*4", "C", []string{"2", "24", "4"}},
		{"The answer is even, because 2*3 = 6", "even", []string{"6", "2"}},
		{"The answer is $5 (ab)$ of these and those 7", "$5 (ab)$ of these and those 7", []string{"5", "7"}},
		{"The answer is 5!", "5", []string{"4", "24"}},
		{"The answer is **5**!", "5", []string{"4", "24"}},
		{"The answer is -5!", "-5", []string{"5"}},
		{"The answer is **5!**", "5", []string{"4", "24"}},
		{"Answer: 5!", "5", []string{"4", "24"}},
		{"The answer is: 5 apples per day!", "5", []string{"120"}},
		{"The answer is: 5 apples per day!", "5 apples per day", nil},
		{"Sam has 25!", "25", nil},
		{"The answer is $5!$.", "120", []string{"5"}},
		{"The answer is \\(5!\\)!", "120", []string{"5"}},
		{"The answer is \\boxed{5!}!", "120", []string{"5"}},
		{"The answer is 5!.", "120", []string{"5"}},
		{"The answer is 5! because it is", "120", []string{"5"}},
		{"5!", "120", []string{"5"}},
		{"The answer is n!", "n!", []string{"n"}},
		{"The answer is 6 = 3!", "6", []string{"3"}},
		{"The answer is 4! + 5!", "144", []string{"29", "5"}},
		{"The answer is 2 (n-1)!", "2 (n-1)!", []string{"2n-2"}},
		{"So x + 1", "x + 1", []string{"1", "x"}},
		{`So \frac{1}{2}`, "0.5", []string{"1", "2"}},
		{"We get 2x", "2x", []string{"2"}},
		{"So 5 + y", "y + 5", []string{"5", "y"}},
		{"x is not 25", "x is not 25", []string{"25"}},
		{"3 mod 7", "3 mod 7", []string{"3", "7"}},
		{"The answer is 3 to 4", "3 to 4", []string{"4 to 3", "3", "4"}},
		{"The answer is 2 by 6.", "2 by 6", []string{"3 by 4", "12"}},
		{"2 am", "2 am", []string{"2", "2 pm"}},
		{"3 xy", "3yx", []string{"3"}},
		{"Ax + By = 3", "By + Ax = 3", []string{"3"}},
		{"2 AB", "2 BA", []string{"2"}},
		{"I = 2 Prt", "2 rtP", []string{"2"}},
		{"The area is 25π.", "25\\pi", []string{"25"}},
		{"The area is 25 pi.", "25\\pi", []string{"25"}},
		{"The length is √5 cm.", "\\sqrt{5}", []string{"5"}},
		{"The point is (2, 3).", "(2,3)", []string{"3"}},
		{"The interval is [2, 3).", "[2,3)", []string{"3"}},
		{"The value is 2+3i.", "2+3i", []string{"3"}},
		{"The value is 2*3.", "6", []string{"3"}},
		{"The mean is x-5.", "x-5", []string{"-5", "5"}},
		{"The number is 10 choose 2.", "The number is 10 choose 2", []string{"2", "10"}},
		{"It is 10 choose 2.", "It is 10 choose 2", []string{"2"}},
		{"The solutions are x = 2 and x = 3.", "2,3", []string{"3"}},
		{"The answers are 2, 3.", "2,3", []string{"3"}},
		{"The ratio is 3 to 4.", "The ratio is 3 to 4", []string{"4", "3", "4 to 3"}},
		{"The population is 5 million.", "5000000", []string{"5"}},
		{"The probability is \\frac{1}{2}.", "0.5", []string{"2"}},
		{"The value is 10!.", "10!", []string{"10"}},
		{"The price is $50.", "50", []string{"50 cents"}},
		{"The value is 3 x 4.", "3 x 4", []string{"4"}},
		{"The width is 5m.", "5", []string{"6"}},
		{"The width is 5 m", "5", nil},
		{"In the year 2020, 25 people came along", "25", nil},
		{"There are 25!", "25", nil},
		{"The perimeter is 2(l+w) = 30", "30", nil},
		{"This makes 2/3 ≈ 0.67", "0.67", nil},
		{"Since x = 3, hence y = 5", "5", nil},
		{"The total was a 5-day trip", "5", nil},
		{"Number (2) 5 apples", "5", nil},
		{"They came in on the 5th", "5", nil},
		{"They sold 48 + 24 = <<48+24=72>>72 clips", "72", []string{"24"}},
		{"| apples | 5 | 6 |", "6", []string{"5"}},
		{"The probability is 1/2, or 50%", "0.5", []string{"1/4"}},
		{"The value of it is 2 or 3", "2, 3", []string{"3"}},
		{"The total (in dollars) is **5** for both", "5", nil},
		{"Problem 2 (5 points)", "5", nil},
		{"Thus Tim - 5 apples", "5", nil},
		{"The number of ways is C(5,2) = 10", "10", nil},
		{"The probability is 3/4 (75%).", "3/4", nil},
		{"The total is 72 (48+24).", "72", []string{"24"}},
		{"The result is clearly 5 (x+3)", "5x+15", nil},
		{"The result is clearly 2 + sin (30)", "2+\\sin(30)", []string{"30"}},
		{"This makes 2+3 -> 5", "5", nil},
		{"This makes 3 - 2 --> 1", "1", []string{"-1"}},
		{"The number of clips --- 5", "5", []string{"-5"}},
		{"So the count is <b>5</b>.", "5", nil},
		{"It has volume 5m³", "5", nil},
		{"The total is 3 1/2", "3.5", []string{"1/2"}},
		{"The inequality is x >= 5", "x >= 5", []string{"5"}},
		{"We get -3 <= x <= 5", "[-3,5]", []string{"5"}},
		{"12 men", "12", []string{"12 women", "1"}},
		{"3 red hats", "3", []string{"3 cups"}},
		{"The answer is 10 - length.", "10 - length", []string{"10"}},
		{"The answer is v - at.", "v - at", []string{"v"}},
		{"The answer is x - my.", "x - my", []string{"x"}},
		{"The answer is 180 - angle A", "180 - angle A", []string{"180"}},
		{"The answer is 5 - two = 3", "5 - two = 3", []string{"5"}},
		{"The answer is 5 – as said", "5 – as said", nil},
		{"The answer is 5 — see above", "5", nil},
		{"The answer is 5 - or 6", "5 - or 6", []string{"5", "6"}},
		{"The answer is 5 - wait, it is 6", "5 - wait, it is 6", []string{"5"}},
		{"The answer is 5, where x > 0, or 6 otherwise", "5, where x > 0, or 6 otherwise", []string{"5"}},
		{"The answer is 5, which is wrong", "5, which is wrong", []string{"5"}},
		{"The answer is x + 1, where x is real.", "x+1", []string{"x"}},
		{"The answer is x (x + 1) for all x", "x (x + 1) for all x", []string{"x"}},
		{"The answer is n (n+1)/2 for every n", "n (n+1)/2 for every n", []string{"n"}},
		{"The answer is (x+1) (x+2) for all x", "(x+1) (x+2) for all x", []string{"x+1"}},
		{"The answer is 2 (5 + 3) = 16 of all", "2 (5 + 3) = 16 of all", []string{"2"}},
		{"The answer is 5 (2) = 10 for all of us", "5 (2) = 10 for all of us", []string{"5"}},
		{"The answer is 5 (or 6)", "5 (or 6)", []string{"5"}},
		{"The answer is 2 (or -2)", "2 (or -2)", []string{"2"}},
		{"The answer is 5 (and 6)", "5 (and 6)", []string{"5"}},
		{"The answer is 5 (in thousands)", "5 (in thousands)", []string{"5"}},
		{"The answer is 5 (hundred)", "5 (hundred)", []string{"5"}},
		{"The answer is 5 (modulo 7)", "5 (modulo 7)", []string{"5"}},
		{"The answer is 5 (in base 7)", "5 (in base 7)", []string{"5"}},
		{"The answer is 101 (in binary)", "101 (in binary)", []string{"101"}},
		{"The answer is x^2 (plus a constant)", "x^2 (plus a constant)", []string{"x^2"}},
		{"The answer is 2 (times pi)", "2 (times pi)", []string{"2"}},
		{"The answer is 5 (see above) million", "5 (see above) million", []string{"5"}},
		{"The answer is 5 (since 2+3 = 5).", "5", []string{"6"}},
		{"The answer is 5 dozen, since it is", "5 dozen, since it is", []string{"5"}},
		{"The answer is 5 dozen.", "60", []string{"5"}},
		{"The answer is 5 hundred.", "500", []string{"5"}},
		{"The answer is **5** hundred.", "500", []string{"5"}},
		{"The answer is 5 squared.", "25", []string{"5"}},
		{"The answer is \\boxed{5 \\text{ hundred}}.", "500", []string{"5"}},
		{"The answer is 5 twice.", "5 twice", []string{"5"}},
		{"The answer is **5** twice", "5 twice", []string{"5"}},
		{"The answer is **5** half.", "5 half", []string{"5"}},
		{"The answer is **5**, twice.", "5 twice", []string{"5"}},
		{"The answer is **5**, squared. That is it", "25", []string{"5"}},
		{"The answer is *5*, Twice", "5 twice", []string{"5"}},
		{"The answer is **5**, half of 10.", "5", []string{"10"}},
		{"v = at + 5", "v = at + 5", []string{"5"}},
		{"ax + by, 5", "ax + by, 5", []string{"5"}},
		{"y = at, 5", "y = at, 5", []string{"5"}},
		{"x + my = 3", "x + my = 3", []string{"3"}},
		{"as = 3", "as = 3", []string{"3"}},
		{"So $v = at + 5$.", "v = at+5", []string{"5"}},
		{"It is -25", "-25", []string{"25"}},
		{"He has 3 of 12", "He has 3 of 12", []string{"3", "12"}},
		{"3 of the 12 are red", "3 of the 12 are red", []string{"3", "12"}},
		{"3 out of 4", "3 out of 4", []string{"3", "4"}},
		{"15% of 100", "15% of 100", []string{"15", "100"}},
		{"It is 5 to 6", "It is 5 to 6", []string{"5", "6"}},
		{"So he has 7 of the 10.", "So he has 7 of the 10.", []string{"7", "10"}},
		{"x is 7 if y is 10", "x is 7 if y is 10", []string{"7", "10"}},
		{"x is 1 or x is 2", "x is 1 or x is 2", []string{"1", "2"}},
		{"Bob is 1, Sue is 2", "Bob is 1, Sue is 2", []string{"1", "2"}},
		{"12 is 3 off", "12 is 3 off", []string{"3", "12"}},
		{"It is up to 3", "It is up to 3", []string{"3"}},
		{"He got all but 3", "He got all but 3", []string{"3"}},
		{"He got 5 dozen", "He got 5 dozen", []string{"5"}},
		{"He got 5 hundred", "He got 5 hundred", []string{"5"}},
		{"12 is the sum of 5 and 7", "12 is the sum of 5 and 7", []string{"5", "7", "5, 7"}},
		{"She has 3 too few", "She has 3 too few", []string{"3"}},
		{"one of 7", "one of 7", []string{"7"}},
		{"5 is odd", "5 is odd", []string{"5"}},
		{"It is 5 or so", "It is 5 or so", []string{"5"}},
		{"x is 1 or 2", "1, 2", []string{"1", "2"}},
		{"x + 5 = 20, so x = 15", "15", []string{"20"}},
		{`\angle A + \angle B = 30^\circ`, "30", nil},
		{"The answer is 3 × 5!", "360", []string{"15"}},
		{"The answer is 3 x 5!", `3x\cdot 120`, []string{"15", "3x5"}},
		{"The answer is 3 times 5!", "3 times 5!", []string{"15"}},
		{"The answer is 8!", "8!", []string{"9"}},
		{"The answer is 8!", "8", []string{"9"}},
		{"Answer: 10!", "10!", []string{"10 + 1"}},
		{"The answer is **10!**", "10!", []string{"100"}},
		{"The answer is (C) 12.", "(C) 12", []string{"(B) 12", "13"}},
		{"The answer is (C) 12.", "12", []string{"13"}},
		{"The answer is (C) 12.", `\textbf{(C)}\ 12`, []string{"13"}},
		{"The answer is (C) 12.", `\text{(C) } 12`, []string{"13"}},
		{"The answer is (A) 5 apples", "(A) 5", []string{"(B) 5"}},
		{"The answer is (A) 5 apples", "5 apples", []string{"5 boys"}},
		{"The answer is (C) 12, since 12 = 3*4.", "12", []string{"3", "4"}},
		{"Total = 15 (dollars)", "15", nil},
	} {
		got := Answers(c.text)
		equal := func(gold string) bool {
			return slices.ContainsFunc(got, func(answer string) bool { return Equal(answer, gold, Options{}) })
		}
		assert.True(t, equal(c.right), "%q gives %q", c.text, got)
		for _, wrong := range c.wrong {
			assert.False(t, equal(wrong), "%q gives %q, is %q", c.text, got, wrong)
		}
	}
}

// TestExtractLongTexts shows that marks that are never closed do not make the time grow with the square of the length: it was minutes.
func TestExtractLongTexts(t *testing.T) {
	for _, start := range []string{"The answer is ", "Then "} {
		for _, part := range []string{`\[ `, `\( x `, `\[ \( $x$ `, "$$ ", "$x$ ", "$ \n", "**a ", "__a *b* "} {
			begin := time.Now()
			answerOf(start + strings.Repeat(part, 20_000))
			require.Less(t, time.Since(begin), 20*time.Second, "%s%s", start, part)
		}
	}
	require.Equal(t, "x", answerOf(`It costs \$5, so \[ or \$6 it is $x$ in the end.`))
}

// TestSigns shows that what differs for some signs or sizes of its variables alone is different.
func TestSigns(t *testing.T) {
	for n := range 200 {
		for _, different := range []string{"|x-%d| ;; %d-x", "|x-%d| ;; x-%d", "|y-%d|+x ;; %d-y+x", "|a+b+c+d-%d| ;; a+b+c+d-%d", `|\frac{x}{y}|+%d ;; \frac{x}{y}+%d`} {
			a, b, _ := strings.Cut(strings.ReplaceAll(different, "%d", strconv.Itoa(n)), " ;; ")
			require.False(t, Equal(a, b, Options{}), "%s ;; %s", a, b)
		}
		for _, equal := range []string{"|x-%d| ;; |%d-x|", `\sqrt{(x-%d)^2} ;; |x-%d|`, "ab|cd|+%d ;; |dc|ab+%d"} {
			a, b, _ := strings.Cut(strings.ReplaceAll(equal, "%d", strconv.Itoa(n)), " ;; ")
			require.True(t, Equal(a, b, Options{}), "%s ;; %s", a, b)
		}
	}
	for _, pair := range [][2]string{{"bc|ad|", `ab\cdot cd`}, {`|be|ac\cdot d`, `ab\cdot cd\cdot e`}, {"bc|ad|", `bc\cdot|a|d`}} {
		require.False(t, Equal(pair[0], pair[1], Options{}), pair)
	}
}

// TestNarrowDomains shows that the verdict on functions that have values at few places is no matter of chance.
func TestNarrowDomains(t *testing.T) {
	for n := 2; n < 42; n++ {
		for pair, want := range map[string]bool{
			`%d\sqrt{1-x^2} ;; %d\sqrt{(1-x)(1+x)}`:                    true,
			`%d\sqrt{1-x^2-y^2} ;; \sqrt{1-y^2-x^2}\cdot %d`:           true,
			`%d\arcsin x ;; \arcsin x\cdot %d`:                         true,
			`%d\arcsin 2x ;; \arcsin(2x)\cdot %d`:                      true,
			`\arcsin(%dx) ;; \frac{\pi}{2}-\arccos(%dx)`:               true,
			`%d\arcsin(x-5) ;; \arcsin(x-5)\cdot %d`:                   true,
			`%d+\arcsin x+\arccos y ;; \arccos y+\arcsin x+%d`:         true,
			`%d+\arcsin\sqrt{x} ;; \arcsin\sqrt{x}+%d`:                 true,
			`%d\binom{n}{k}\binom{k}{m} ;; \binom{k}{m}\binom{n}{k}%d`: true,
			`%d+|x|\arcsin x ;; x\arcsin x+%d`:                         false,
			`%d-|x|\arcsin x ;; x\arcsin x+%d`:                         false,
			`%d+|x|\arcsin 3x ;; x\arcsin 3x+%d`:                       false,
			`%d+|xy|\arcsin x\arcsin y ;; xy\arcsin x\arcsin y+%d`:     false,
			`%d+|x|\sqrt{1-x^2} ;; x\sqrt{1-x^2}+%d`:                   false,
		} {
			a, b, _ := strings.Cut(strings.ReplaceAll(pair, "%d", strconv.Itoa(n)), " ;; ")
			require.Equal(t, want, Equal(a, b, Options{}), "%s ;; %s", a, b)
		}
	}
}

// TestBars shows which absolute values, and which bars of sets, are read where a bar may be either.
func TestBars(t *testing.T) {
	for _, pair := range [][2]string{
		{`|\log_2|x||`, `|\log_2(|x|)|`},
		{`|\log_{2}|x||`, `|\log_2(|x|)|`},
		{`|\sin^2|x||`, `|\sin^2(|x|)|`},
		{`|\log_{2^{3}}|x||`, `|\log_8(|x|)|`},
		{`|\sin^{2}|x||`, `|\sin^2(|x|)|`},
		{`|x_2|y`, `y|x_2|`},
		{`|2^3|y`, `8y`},
		{`|x^{2}|y`, `yx^2`},
		{`\left\{x\left|x>2\right.\right\}`, `x>2`},
		{`\{x|x>2\}`, `x>2`},
		{`\left\{x:\left|x-1\right|>2\right\}`, `\{x:|x-1|>2\}`},
	} {
		require.True(t, Equal(pair[0], pair[1], Options{}), pair)
		require.True(t, Equal(pair[1], pair[0], Options{}), pair)
	}
}

// TestSmallDomains shows that a factorial or a binomial with few values is no evidence for what agrees with it there.
func TestSmallDomains(t *testing.T) {
	for pair, want := range map[string]bool{
		`\binom{2}{k} ;; 3-k`:                              false,
		`\binom{2}{k} ;; \frac{2}{k}`:                      false,
		`\binom{3}{k} ;; 3-(k-1)(k-2)`:                     false,
		`\binom{1}{k} ;; k`:                                false,
		`\binom{1}{k} ;; 1`:                                false,
		`(2-n)! ;; 1`:                                      false,
		`\binom{2}{k} ;; 1+2k-k^2`:                         false,
		`x\binom{2}{k} ;; x(1+2k-k^2)`:                     false,
		`\binom{2}{k}\sqrt{-2} ;; (1+2k-k^2)\sqrt{-2}`:     false,
		`x+\binom{2}{k}y=1 ;; x+(1+2k-k^2)y=1`:             false,
		`\binom{4}{k}x ;; \binom{4}{k}|x|`:                 false,
		`\binom{2}{k} ;; \binom2k`:                         true,
		`x+\binom{2}{k}=1 ;; x+\binom2k=1`:                 true,
		`\binom{6}{k} ;; \binom{6}{6-k}`:                   true,
		`\binom{7}{k}x ;; x\binom{7}{7-k}`:                 true,
		`\binom{7}{k}\arcsin x ;; \binom{7}{7-k}\arcsin x`: true,
		`n! ;; n(n-1)!`:                                    true,
	} {
		a, b, _ := strings.Cut(pair, " ;; ")
		require.Equal(t, want, Equal(a, b, Options{}), pair)
		require.Equal(t, want, Equal(b, a, Options{}), pair)
	}
}

// A factorial or a binomial that begins to have values at a large number has enough of them.
func TestLateDomains(t *testing.T) {
	for pair, want := range map[string]bool{
		`\binom{n}{60}x ;; x\binom{n}{n-60}`:              true,
		`\binom{n}{200} ;; \binom{n}{n-200}`:              true,
		`\binom{n}{k+60} ;; \binom{n}{n-k-60}`:            true,
		`\frac{n!}{(n-60)!} ;; 60!\binom{n}{60}`:          true,
		`\binom{n-60}{3} ;; \frac{(n-60)(n-61)(n-62)}{6}`: true,
		`x+\binom{n}{200}=1 ;; 2x+2\binom{n}{n-200}=2`:    true,
		`\binom{n}{60} ;; \binom{n}{61}`:                  false,
		`\binom{n}{200} ;; 1+(n-200)\cdot 201`:            false,
		`\binom{2}{k}+60-60 ;; 1+2k-k^2`:                  false,
	} {
		a, b, _ := strings.Cut(pair, " ;; ")
		require.Equal(t, want, Equal(a, b, Options{}), pair)
		require.Equal(t, want, Equal(b, a, Options{}), pair)
	}
}

// TestLongTuples shows that the first entries of a long tuple leave steps for the last.
func TestLongTuples(t *testing.T) {
	tuple := func(entry string, n int, last string) string {
		return "(" + strings.Repeat(entry+",", n-1) + last + ")"
	}
	a, b := `\frac{\sqrt{k}}{2}\pi x`, `\frac{\pi x\sqrt{k}}{2}`
	require.True(t, Equal(tuple(a, 20, a), tuple(b, 20, b), Options{}))
	require.False(t, Equal(tuple(a, 20, a), tuple(b, 20, b+"+1"), Options{}))
	require.True(t, Equal(tuple(`\sin(x+1)`, 40, "x"), tuple(`\sin(1+x)`, 40, "x"), Options{}))
}

// The article before dozen, hundred and the like is no variable, which would mind its case.
func TestArticles(t *testing.T) {
	for _, p := range [][2]string{{"A dozen eggs", "a dozen eggs"}, {"a hundred dollars", "A hundred dollars"}, {"100", "a hundred"}, {"A thousand", "a thousand"}} {
		require.True(t, Equal(p[0], p[1], Options{}), p)
	}
	require.False(t, Equal("12", "a hundred", Options{}))
	require.False(t, Equal("A", "a", Options{}))
}

// bombs would take for ever, or all memory, if they were computed.
var bombs = []string{
	"9^9^9^9", "9^{9^{9^{9}}}", "10^{10^{10}}", "2^{2^{2^{2^{2^{2}}}}}", "((((10^99)^99)^99)^99)^99", "1e999999999", "(10^{400})!", "9999999!",
	`\binom{99999}{50000}`, "x^{99999}", "(x+1)^{99999}", "1e1000e1000", "0.5^{99999999}", "1/9^{9^9}", `\sqrt[99999]{2}`, `e^{e^{e^{e^e}}}`, `\sin(10^{100})`,
	strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500), strings.Repeat(`\frac{1}{`, 150) + "1" + strings.Repeat("}", 150),
	strings.Repeat(`1\frac{`, 50) + "1" + strings.Repeat("}{2}", 50), strings.Repeat("-", 1900) + "1", strings.Repeat(`\sqrt{`, 200) + "2" + strings.Repeat("}", 200),
	strings.Repeat(`\sin `, 300) + "x", strings.Repeat("1,", 900) + "1", strings.Repeat("9", 1990), strings.Repeat(`x\pm `, 300) + "x", strings.Repeat("x^", 900) + "2",
	strings.Repeat(`\text{`, 200) + "a" + strings.Repeat("}", 200), strings.Repeat(`\{`, 300), strings.Repeat(`\sin x+`, 250) + "1", strings.Repeat("a<", 300) + "b",
	strings.Repeat("x/", 900) + "y", strings.Repeat("(x+1)^{500}", 100), strings.Repeat(`\arctan x+`, 150) + "1", strings.Repeat("{", 900) + strings.Repeat("}", 900),
}

// TestBombs shows that every answer gets its verdict within the bounds, by the steps that were spent and not by a clock.
func TestBombs(t *testing.T) {
	for _, b := range bombs {
		require.True(t, Equal(b, b, Options{}), "%.40s", b)
		for _, other := range []string{b + "+1", "1" + b, "1", bombs[len(bombs)-1]} {
			c := newComparer(b, other, Options{})
			for _, p := range readings(clean(b)) {
				for _, q := range readings(clean(other)) {
					c.same(p, q)
				}
			}
			require.Greater(t, c.fuel, -maxFuel/10, "%.40s", b)
		}
	}
}

func TestDifferentBombsAreNotEqual(t *testing.T) {
	require.False(t, Equal("9^9^9^9", "9^9^9^9+1", Options{}))
	require.False(t, Equal("10^{300000}", "10^{300000}+1", Options{}))
	require.False(t, Equal(`\pi\cdot 10^{80}`, `\pi\cdot 10^{80}+1`, Options{}))
	require.False(t, Equal(`\pi\cdot 10^{-80}`, `2\pi\cdot 10^{-80}`, Options{}))
	require.False(t, Equal(`e^{200}`, `e^{200}+1`, Options{}))
}

// TestFunctions holds the functions against float64, and against identities that hold to the last of 700 bits.
func TestFunctions(t *testing.T) {
	for _, x := range []float64{-700, -20.5, -3, -1, -0.5, -1e-9, 0.3, 1, 2, 3.14159, 10, 100, 555.25} {
		f := newFloat().SetFloat64(x)
		e, err := exp(f)
		if x < 207 && x > -1000 {
			require.NoError(t, err)
			requireNear(t, math.Exp(x), e)
			l, err := logarithm(e)
			require.NoError(t, err)
			require.True(t, near(l, f), "log exp %v", x)
		} else {
			require.ErrorIs(t, err, errTooBig)
		}
		s, c, err := sinCos(f)
		require.NoError(t, err)
		requireNear(t, math.Sin(x), s)
		requireNear(t, math.Cos(x), c)
		one := newFloat().Add(newFloat().Mul(s, s), newFloat().Mul(c, c))
		require.True(t, near(one, fromInt(1)))
		a := atan(f)
		requireNear(t, math.Atan(x), a)
		s, c, err = sinCos(a)
		require.NoError(t, err)
		require.True(t, near(newFloat().Quo(s, c), f), "tan atan %v", x)
	}
	requireNear(t, math.Pi, pi())
	s, _, err := sinCos(pi())
	require.NoError(t, err)
	require.True(t, near(s, newFloat()))
	require.Equal(t, "3.14159265358979323846264338327950288419716939937510582097494459", pi().Text('f', 62))
	e, err := exp(fromInt(1))
	require.NoError(t, err)
	require.Equal(t, "2.71828182845904523536028747135266249775724709369995957496696763", e.Text('f', 62))
	require.Equal(t, "0.69314718055994530941723212145817656807550013436025525412068001", ln2().Text('f', 62))
}

func requireNear(t *testing.T, want float64, got *big.Float) {
	f, _ := got.Float64()
	require.InDelta(t, want, f, 1e-13*max(1, math.Abs(want)))
}

// FuzzEqual: no panic, no long time, symmetric, and everything equals itself.
func FuzzEqual(f *testing.F) {
	for _, p := range readPairs(f) {
		f.Add(p.Gold, p.Answer)
	}
	for _, b := range bombs {
		f.Add(b, "1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 5000 {
			return
		}
		start := time.Now()
		require.Equal(t, Equal(a, b, Options{}), Equal(b, a, Options{}))
		require.True(t, Equal(a, a, Options{}))
		Equal(answerOf(a), b, Options{Tolerance: 1e-3})
		if d := time.Since(start); d > 20*time.Second { // far beyond what the bound of steps allows: the engine's own limit for a hang
			t.Fatalf("%v for %q ;; %q", d, a, b)
		}
	})
}
