package webshop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/environments"
)

// product of the shop.
type product struct {
	id          string // as ASINs: at most 10 letters and digits in upper case
	title       string
	query       string   // the search that the data set found it with, in lower case
	path        []string // of categories, from the widest: ["Clothing", "Shoes", "Hiking Boots"]
	description string
	features    []string // the bullet points
	attributes  []string // what goals ask for; not shown as such
	options     []option
	price       float64 // dollars
	rating      string  // "4.3"; "N.A."
	reviews     []string
}

// option is what a buyer chooses one value of.
type option struct {
	name   string // in lower case
	values []string
}

// goal is what an episode asks for.
type goal struct {
	product    int // of the catalogue, which fits in everything
	number     int // among the goals of the product, from 0
	text       string
	attributes []string
	options    []string // values
	priceUpper float64  // dollars; noLimit: any price
}

const noLimit = 1_000_000

// name of a goal in tasks.
func (g goal) name(c *catalogue) string {
	return c.products[g.product].id + "-" + strconv.Itoa(g.number)
}

// catalogue is not changed after finish.
type catalogue struct {
	name     string // in the ids of tasks
	products []product
	goals    []goal
	byID     map[string]int // of a product, in lower case
	byName   map[string]int // of a goal
	train    []int          // goals, mixed
	eval     []int
}

// split are the goals of a split.
func (c *catalogue) split(name string) []int {
	if name == environments.Eval {
		return c.eval
	}
	return c.train
}

// finish numbers what was added, and splits the goals: all goals of every fifth product, in an order mixed by the seed, are held out.
func (c *catalogue) finish(seed int64) (*catalogue, error) {
	c.byID, c.byName = make(map[string]int, len(c.products)), make(map[string]int, len(c.goals))
	for i, p := range c.products {
		c.byID[strings.ToLower(p.id)] = i
	}
	var wanted []int // products with goals
	for i, g := range c.goals {
		c.byName[g.name(c)] = i
		if len(wanted) == 0 || wanted[len(wanted)-1] != g.product {
			wanted = append(wanted, g.product)
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("none of the %d products has a goal", len(c.products))
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	mixed := rand.New(rand.NewPCG(uint64(seed), 0x5711))
	mixed.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })
	held := map[int]bool{}
	for i, p := range wanted {
		held[p] = i%5 == 4
	}
	for i, g := range c.goals {
		if held[g.product] {
			c.eval = append(c.eval, i)
		} else {
			c.train = append(c.train, i)
		}
	}
	for _, goals := range [][]int{c.train, c.eval} {
		mixed.Shuffle(len(goals), func(i, j int) { goals[i], goals[j] = goals[j], goals[i] })
	}
	return c, nil
}

// limit draws the price that a goal asks to stay below, and the words for it: of the four tens of dollars above the price, below 1,000, the
// larger of two.
func limit(r *rand.Rand, price float64) (upper float64, text string) {
	var above []float64
	for p := 10.0; p < 1000 && len(above) < 4; p += 10 {
		if p > price {
			above = append(above, p)
		}
	}
	if len(above) < 2 {
		return noLimit, ""
	}
	i, j := r.IntN(len(above)), r.IntN(len(above)-1)
	if j >= i {
		j++
	}
	upper = above[max(i, j)]
	return upper, fmt.Sprintf(", and price lower than %.2f dollars", upper)
}
