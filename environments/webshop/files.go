package webshop

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// item is a product as items_shuffle.json has it. Other keys are not read.
type item struct {
	ASIN        string  `json:"asin"`
	Name        string  `json:"name"`
	Query       string  `json:"query"`
	Category    string  `json:"product_category"` // "Clothing › Shoes › Hiking Boots"
	Description string  `json:"full_description"`
	Features    texts   `json:"small_description"`
	Pricing     string  `json:"pricing"` // "$12.99", "$9.99$19.99"
	Options     choices `json:"customization_options"`
}

// choices are the options of a product and what there is of each. A product without any may have "" in their place.
type choices map[string][]struct{ Value string }

// UnmarshalJSON reads an object, or an empty text.
func (c *choices) UnmarshalJSON(b []byte) error {
	if string(b) == `""` {
		*c = nil
		return nil
	}
	return json.Unmarshal(b, (*map[string][]struct{ Value string })(c))
}

// texts is a list of texts, or one.
type texts []string

// UnmarshalJSON reads a list of texts, one text, or null.
func (t *texts) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		if *t = nil; one != nil {
			*t = texts{*one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// values are those of an option that a goal asks for: a list, or an object from option to value.
type values []string

// UnmarshalJSON reads either; the values of an object are ordered by its keys.
func (v *values) UnmarshalJSON(b []byte) error {
	var named map[string]string
	if json.Unmarshal(b, &named) == nil {
		*v = nil
		for _, k := range slices.Sorted(maps.Keys(named)) {
			*v = append(*v, named[k])
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(v))
}

// instructed is the entry of a product in items_ins_v2.json.
type instructed struct {
	Attributes            []string `json:"attributes"`
	Instruction           string   `json:"instruction"`
	InstructionAttributes []string `json:"instruction_attributes"`
}

// written is a goal of a product in items_human_ins.json.
type written struct {
	Instruction string   `json:"instruction"`
	Attributes  []string `json:"instruction_attributes"`
	Options     values   `json:"instruction_options"`
}

// readFiles makes the catalogue of the data set's files: the first n products, or all with 0. Products whose ASIN is "nan", longer than ten characters,
// or there already, are left out, as the authors' code does. seed draws prices where the file has two, and the limits of goals.
func readFiles(ctx context.Context, f Files, n int, seed int64) (*catalogue, error) {
	attributes := map[string]instructed{}
	if err := eachKey(ctx, f.Attributes, func(asin string, d *json.Decoder) error {
		var x instructed
		err := d.Decode(&x)
		attributes[asin] = x
		return err
	}); err != nil {
		return nil, err
	}
	human := map[string][]written{}
	if f.HumanGoals != "" {
		if err := eachKey(ctx, f.HumanGoals, func(asin string, d *json.Decoder) error {
			var x []written
			err := d.Decode(&x)
			human[asin] = x
			return err
		}); err != nil {
			return nil, err
		}
	}
	c := &catalogue{name: Name + "-" + strings.TrimSuffix(filepath.Base(f.Items), ".json")}
	seen := map[string]bool{}
	err := eachItem(ctx, f.Items, n, func(x item) error {
		if x.ASIN == "" {
			return errors.New(`it has no "asin"`)
		}
		if x.ASIN == "nan" || len(x.ASIN) > 10 || seen[strings.ToLower(x.ASIN)] {
			return nil
		}
		seen[strings.ToLower(x.ASIN)] = true
		r := rand.New(rand.NewPCG(uint64(seed), uint64(len(c.products))))
		p, err := x.product(attributes[x.ASIN].Attributes, r)
		if err != nil {
			return fmt.Errorf("%s: %w", x.ASIN, err)
		}
		c.products = append(c.products, p)
		if f.HumanGoals != "" {
			c.addWritten(human[x.ASIN], r)
		} else {
			c.addMade(attributes[x.ASIN], r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c, err = c.finish(seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w in %s; give files that belong together", f.Items, err, cmp.Or(f.HumanGoals, f.Attributes))
	}
	return c, nil
}

// addWritten adds the goals that people wrote for the last product. One that asks for no attribute is left out.
func (c *catalogue) addWritten(goals []written, r *rand.Rand) {
	at := len(c.products) - 1
	for i, w := range goals {
		if len(w.Attributes) == 0 {
			continue
		}
		g := goal{product: at, number: i, attributes: w.Attributes, options: w.Options}
		var below string
		g.priceUpper, below = limit(r, c.products[at].price)
		g.text = strings.Trim(w.Instruction, ".") + below
		c.goals = append(c.goals, g)
	}
}

// mostMade are the goals that are made of one product: some have thousands of combinations of options.
const mostMade = 10

// addMade makes goals of the last product from its instruction: one for each combination of its options' values, the first mostMade.
func (c *catalogue) addMade(x instructed, r *rand.Rand) {
	if x.Instruction == "" || len(x.InstructionAttributes) == 0 {
		return
	}
	at := len(c.products) - 1
	options := c.products[at].options
	for number := range mostMade {
		g := goal{product: at, number: number, attributes: x.InstructionAttributes}
		var asked []string
		rest := number
		for i := len(options) - 1; i >= 0; i-- { // the last option changes fastest
			o := options[i]
			v := o.values[rest%len(o.values)]
			rest /= len(o.values)
			g.options = append([]string{v}, g.options...)
			asked = append([]string{o.name + ": " + v}, asked...)
		}
		if rest > 0 {
			return
		}
		g.text = x.Instruction
		if len(asked) > 0 {
			g.text += " with " + strings.Join(asked, ", and ")
		}
		var below string
		g.priceUpper, below = limit(r, c.products[at].price)
		g.text += below
		c.goals = append(c.goals, g)
	}
}

var notPrice = regexp.MustCompile(`[^\d.]`)

// product of an item. One without a price costs 100 dollars; of two prices one between them is drawn.
func (x item) product(attributes []string, r *rand.Rand) (product, error) {
	p := product{
		id: strings.ToUpper(x.ASIN), title: x.Name, query: strings.TrimSpace(strings.ToLower(x.Query)), description: x.Description, features: x.Features,
		attributes: attributes, price: 100, rating: "N.A.",
	}
	for c := range strings.SplitSeq(x.Category, "›") {
		p.path = append(p.path, strings.TrimSpace(c))
	}
	var prices []float64
	if parts := strings.Split(x.Pricing, "$"); len(parts) > 1 {
		for _, part := range parts[1:min(3, len(parts))] {
			v, err := strconv.ParseFloat(notPrice.ReplaceAllString(part, ""), 64)
			if err != nil {
				return p, fmt.Errorf("pricing %q is no price such as $12.99 or $9.99$19.99", x.Pricing)
			}
			prices = append(prices, v)
		}
	}
	switch len(prices) {
	case 1:
		p.price = prices[0]
	case 2:
		p.price = math.Round(100*(prices[0]+(prices[1]-prices[0])*r.Float64())) / 100
	}
	for _, name := range slices.Sorted(maps.Keys(x.Options)) {
		o := option{name: strings.ToLower(name)}
		for _, v := range x.Options[name] {
			if v := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(v.Value), "/", " | ")); v != "" {
				o.values = append(o.values, v)
			}
		}
		if len(o.values) > 0 {
			p.options = append(p.options, o)
		}
	}
	if strings.TrimSpace(p.passage().Text) == "" {
		return p, errors.New(`it has no "name" and no other text, so that no search finds it; leave it out`)
	}
	return p, nil
}

// eachItem calls f with the first n elements of a file that is a list; 0 is all. The list is read an element at a time: the whole file has five gigabytes.
func eachItem(ctx context.Context, path string, n int, f func(x item) error) error {
	return readJSON(path, '[', func(d *json.Decoder) error {
		for i := 0; d.More() && (n == 0 || i < n); i++ {
			if err := ctx.Err(); i%1024 == 0 && err != nil {
				return err
			}
			var x item
			err := d.Decode(&x)
			if err == nil {
				err = f(x)
			}
			if err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
		return nil
	})
}

// eachKey calls f with each key of a file that is an object; f decodes its value.
func eachKey(ctx context.Context, path string, f func(key string, d *json.Decoder) error) error {
	return readJSON(path, '{', func(d *json.Decoder) error {
		for i := 0; d.More(); i++ {
			if err := ctx.Err(); i%1024 == 0 && err != nil {
				return err
			}
			t, err := d.Token()
			if err != nil {
				return fmt.Errorf("key %d: %w", i, err)
			}
			key, _ := t.(string)
			if err := f(key, d); err != nil {
				return fmt.Errorf("key %d, %q: %w", i, key, err)
			}
		}
		return nil
	})
}

// readJSON opens a file of one JSON list or object and calls f behind its opening bracket. Errors name the file and the line.
func readJSON(path string, opening json.Delim, f func(d *json.Decoder) error) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	d := json.NewDecoder(bufio.NewReaderSize(in, 1<<20))
	t, err := d.Token()
	if err == nil && t != opening {
		err = fmt.Errorf("the file begins with %v, not with %v", t, opening)
	}
	if err == nil {
		err = f(d)
	}
	at := d.InputOffset()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		at, err = math.MaxInt64, fmt.Errorf("the file ends too early: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%s: line %d: %w", path, lineAt(path, at), err)
	}
	return nil
}

// lineAt is the number of the line that a byte of a file is in, the last one behind its end; 0 where it cannot be read.
func lineAt(path string, offset int64) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	in := bufio.NewReader(io.LimitReader(f, offset))
	for line := 1; ; {
		_, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			line++
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return line
		}
	}
}
