package webshop

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The authors compare with thefuzz: testdata/tokensetratio.py writes what it says.
func TestTokenSetRatioIsThefuzzs(t *testing.T) {
	b, err := os.ReadFile("testdata/tokensetratio.json")
	require.NoError(t, err)
	var pairs [][3]any
	require.NoError(t, json.Unmarshal(b, &pairs))
	require.Greater(t, len(pairs), 1000)
	for _, p := range pairs {
		require.InDelta(t, p[2], tokenSetRatio(p[0].(string), p[1].(string)), 0, "%q %q", p[0], p[1])
	}
}

// The first name in the alphabet that stands in the value.
func TestColourOf(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "black forest": "black", "violet lavender": "lavender", "steelivy fuchsia": "fuchsia", "xx-large": "xx-large", "dark blue": "blue", "123alabaster123": "alabaster",
	} {
		require.Equal(t, want, colourOf(text), text)
	}
	for _, c := range list(shades) {
		require.Equal(t, c, colourOf(c))
	}
}

func boots() product {
	return product{
		title: "Norvik waterproof hiking boots, non slip, K12", query: "hiking boots", path: []string{"Clothing", "Shoes", "hiking boots"},
		attributes: []string{"waterproof", "non slip"}, features: []string{"Rubber sole."}, description: "Boots with arch support.", price: 49.5,
		options: []option{{"color", []string{"black", "red"}}, {"size", []string{"8", "9"}}},
	}
}

// A reward is what the authors' get_reward gives for the same matches: an option that is asked for counts once, for whatever value is alike to it.
func TestRewardOfAPurchase(t *testing.T) {
	g := goal{attributes: []string{"waterproof", "arch support"}, options: []string{"red", "9"}, priceUpper: 60}
	right := map[string]string{"color": "red", "size": "9"}
	for name, c := range map[string]struct {
		change func(p *product, g *goal)
		chosen map[string]string
		want   float64
	}{
		"everything":                         {nil, right, 1},
		"nothing chosen":                     {nil, nil, 3.0 / 5},
		"one option wrong":                   {nil, map[string]string{"color": "black", "size": "9"}, 4.0 / 5},
		"an option alike":                    {nil, map[string]string{"color": "bright red", "size": "9"}, 1},
		"sizes are alike too":                {nil, map[string]string{"color": "red", "size": "9 wide"}, 1},
		"one value for both options":         {nil, map[string]string{"color": "red", "trim": "red"}, 4.0 / 5},
		"an option nobody asked for":         {nil, map[string]string{"color": "red", "style": "waterproof"}, 4.0 / 5},
		"another option's value":             {nil, map[string]string{"trim": "red", "size": "9"}, 1},
		"a wrong option in the text":         {func(p *product, _ *goal) { p.description += " Sold in black and red." }, map[string]string{"color": "black", "size": "9"}, 4.0 / 5},
		"too dear":                           {func(p *product, _ *goal) { p.price = 60.01 }, right, 4.0 / 5},
		"the limit itself":                   {func(p *product, _ *goal) { p.price = 60 }, right, 1},
		"an attribute missing":               {func(p *product, _ *goal) { p.attributes = nil; p.title = "Norvik hiking boots" }, right, 4.0 / 5},
		"an attribute in the features alone": {func(_ *product, g *goal) { g.attributes = []string{"rubber sole"} }, right, 1},
		"no options asked, some in the text": {func(p *product, g *goal) { g.options = nil; p.description += " In red." }, right, 1},
		"another shelf":                      {func(p *product, _ *goal) { p.title, p.query, p.path = "Pawsley dog bed", "dog bed", []string{"Pets"} }, right, 0},
		"one noun of many": {func(p *product, _ *goal) {
			p.title, p.query, p.path = "Norvik dog bed", "dog bed", []string{"Pets"}
		}, right, 1.0 * 4 / 5}, // a third of norvik, hiking, boots; the title's "waterproof" stays an attribute of its own; "arch support" in the text
	} {
		t.Run(name, func(t *testing.T) {
			p, g := boots(), g
			if c.change != nil {
				c.change(&p, &g)
			}
			if name == "one noun of many" {
				p.description = ""
			}
			require.InDelta(t, c.want, rate(p, boots(), g, c.chosen).reward, 1e-12)
		})
	}
}

// Of a generated product's options, none but the values that the goal asks for pays in full.
func TestValuesOfOptionsAreNotAlike(t *testing.T) {
	for _, k := range kinds {
		var values []string
		for _, o := range k.options {
			_, written, _ := strings.Cut(o, ": ")
			values = append(values, list(strings.ReplaceAll(written, "@", shades))...)
		}
		for i, a := range values {
			for _, b := range values[i+1:] {
				require.False(t, alike(colourOf(a), colourOf(b)), "%s: %s, %s", k.path, a, b)
			}
		}
	}
}

func TestTypeOfAPurchase(t *testing.T) {
	want := product{title: "one two three four five six seven eight nine ten eleven", query: "q", path: []string{"a", "b", "c"}}
	want.title = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo" // eleven nouns
	for name, c := range map[string]struct {
		bought product
		rType  float64
	}{
		"all":                             {want, 1},
		"the query alone":                 {product{title: "alpha bravo x", query: "q"}, 1},
		"two categories":                  {product{title: "alpha bravo", path: []string{"c", "a"}}, 1},
		"one category":                    {product{title: "alpha bravo", path: []string{"c"}}, 0.5},
		"three of eleven nouns":           {product{title: "alpha bravo kilo"}, 1},
		"two of eleven nouns":             {product{title: "alpha bravo"}, 0.5},
		"one of eleven nouns":             {product{title: "alpha", query: "q"}, 0.1},
		"no noun, the query all the same": {product{title: "zulu", query: "q", path: []string{"a", "b"}}, 0},
	} {
		require.InDelta(t, c.rType, typeOf(c.bought, want).rType, 0, name)
	}
	require.InDelta(t, 0.2, titleScore([]string{"a"}, nil), 0)
}
