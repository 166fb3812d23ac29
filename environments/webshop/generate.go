package webshop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// kind is a shelf of the generated shop. Lists are written with commas.
type kind struct {
	path       string // the first two categories; a type is the third
	types      string
	low, high  float64  // dollars
	brands     string   // words
	attributes string   // of which a product has four to six
	options    []string // "name: values"; @ stands for shades
}

// generate makes a catalogue of n products, each with one goal. The same n and seed make the same catalogue; no two titles are equal.
func generate(n int, seed int64) *catalogue {
	r := rand.New(rand.NewPCG(uint64(seed), 0x5a0b))
	c := &catalogue{name: fmt.Sprintf("%s-%d-%d", Name, n, seed), products: make([]product, 0, n), goals: make([]goal, 0, n)}
	ids := r.Perm(max(9*n, 90_000))
	digits := len(fmt.Sprint(10 * n)) // as many as the largest id needs
	titles := map[string]bool{}
	for len(c.products) < n {
		k := kinds[r.IntN(len(kinds))]
		p := k.product(r, titles)
		titles[p.title] = true
		p.id = fmt.Sprintf("B%0*d", digits, ids[len(c.products)]+1)
		c.goals = append(c.goals, p.goal(r, len(c.products)))
		c.products = append(c.products, p)
	}
	c, _ = c.finish(seed) // there are goals
	return c
}

// product draws one whose title is not taken.
func (k kind) product(r *rand.Rand, taken map[string]bool) product {
	types, attributes := list(k.types), list(k.attributes)
	kindOf := types[r.IntN(len(types))]
	p := product{
		query: kindOf, path: append(strings.Split(k.path, " › "), kindOf),
		price:  math.Round(k.low+(k.high-k.low)*r.Float64()*r.Float64()) - []float64{0.01, 0.05, 0.5, 0}[r.IntN(4)],
		rating: fmt.Sprintf("%.1f", 2.5+2.5*math.Sqrt(r.Float64())),
	}
	p.attributes = some(r, attributes, 4+r.IntN(3))
	brands := strings.Fields(k.brands)
	for p.title == "" || taken[p.title] {
		p.title = fmt.Sprintf("%s %s %s, %s, %s", brands[r.IntN(len(brands))], p.attributes[0], kindOf, p.attributes[1], code(r))
	}
	p.description = strings.ReplaceAll(looks[r.IntN(len(looks))], "%s", kindOf)
	for _, a := range p.attributes {
		p.features = append(p.features, strings.ToUpper(a[:1])+a[1:]+".")
	}
	p.description += " " + strings.Join(p.features, " ")
	for _, o := range k.options {
		name, values, _ := strings.Cut(o, ": ")
		all := list(strings.ReplaceAll(values, "@", shades))
		p.options = append(p.options, option{name, some(r, all, min(3+r.IntN(3), len(all)))})
	}
	for range 1 + r.IntN(3) {
		p.reviews = append(p.reviews, opinions[r.IntN(len(opinions))])
	}
	return p
}

// code of a product: four consonants, in which no attribute can stand.
func code(r *rand.Rand) string {
	const consonants = "BCDFGHJKLMNPQRSTVWXZ"
	out := make([]byte, 4)
	for i := range out {
		out[i] = consonants[r.IntN(len(consonants))]
	}
	return string(out)
}

// goal asks for the product by two or three of its attributes, a value of each option, and a limit of the price.
func (p product) goal(r *rand.Rand, number int) goal {
	g := goal{product: number, attributes: some(r, p.attributes, 2+r.IntN(2))}
	var asked []string
	for _, o := range p.options {
		v := o.values[r.IntN(len(o.values))]
		g.options = append(g.options, v)
		asked = append(asked, o.name+": "+v)
	}
	var below string
	g.priceUpper, below = limit(r, p.price)
	g.text = fmt.Sprintf(asks[r.IntN(len(asks))], strings.Join(g.attributes, ", "), p.query) + " with " + strings.Join(asked, ", and ") + below
	return g
}

// list splits a list written with commas.
func list(text string) []string { return strings.Split(text, ", ") }

// some are n different elements, in their order in all.
func some(r *rand.Rand, all []string, n int) []string {
	take := make(map[int]bool, n)
	for _, i := range r.Perm(len(all))[:n] {
		take[i] = true
	}
	out := make([]string, 0, n)
	for i, x := range all {
		if take[i] {
			out = append(out, x)
		}
	}
	return out
}
