// Package webshop is a shop in text: an agent reads what somebody wants, searches the catalogue, opens products, chooses options and buys
// (WebShop, arXiv 2207.01206, in its text mode). The reward of the purchase is the paper's, see reward.go.
//
//	search page ── search[words] ──> results, ten a page ── click[B10417] ──> product ── click[Buy Now] ──> end
//	     ^            click[Next >], click[< Prev]            │  ^  click[an option], click[< Prev] (to the results)
//	     └──────────────── click[Back to Search] ─────────────┘  └── click[Description], click[Features], click[Reviews]
//
// The catalogue is generated from a seed (generate.go), or read from the data set's own files (files.go). Products and goals are made once for a
// [environments.Source], at first use, and are not changed from then on; the index is package tools/search's and lies in the folder of caches. All
// environments of a source share both.
//
// It does not show pictures, and it has no HTML: the agent reads lines in which everything that can be clicked stands in brackets.
package webshop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools/search"
	"github.com/agentfly/agentfly/trajectory"
)

// Name of the kind.
const Name = "webshop"

// Params of the environment in a job.
type Params struct {
	Products *int   `json:"products"`  // of the generated catalogue, 100 to 1,000,000; 10,000. With files: the first so many of the file; all
	Seed     *int64 `json:"seed"`      // of catalogue, goals and their split; 1
	MaxSteps *int   `json:"max_steps"` // of an episode, 3 to 1,000; 15
	Files    *Files `json:"files"`     // the data set's own; nil: the catalogue is generated
}

// Files are those of the data set of arXiv 2207.01206.
type Files struct {
	Items      string `json:"items"`       // items_shuffle.json, items_shuffle_1000.json
	Attributes string `json:"attributes"`  // items_ins_v2.json, items_ins_v2_1000.json
	HumanGoals string `json:"human_goals"` // items_human_ins.json; "": goals are made from the instructions of the attributes' file
}

// Kind declares the environment.
func Kind() environments.Kind {
	return environments.Kind{
		Name:        Name,
		Description: "a shop in text: search, open products, choose options, buy what the instruction asks for (arXiv 2207.01206)",
		New:         New,
	}
}

// New makes the source of one job. The catalogue is made and indexed when the run begins, or at first use.
func New(_ context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	var p Params
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	s := &source{resources: r, seed: 1, products: 10_000, maxSteps: 15, files: p.Files}
	if p.Files != nil {
		s.products = 0
	}
	if p.Seed != nil {
		s.seed = *p.Seed
	}
	if p.Products != nil {
		s.products = *p.Products
		if s.products < 1 || s.files == nil && s.products < 100 || s.products > 1_000_000 && s.files == nil {
			return nil, fmt.Errorf("products is %d; a generated catalogue has 100 to 1000000, and of files at least the first one is read", s.products)
		}
	}
	if p.MaxSteps != nil {
		if s.maxSteps = *p.MaxSteps; s.maxSteps < 3 || s.maxSteps > 1000 {
			return nil, fmt.Errorf("max_steps is %d; give 3 to 1000: a search, a product and the purchase are three", s.maxSteps)
		}
	}
	if s.files != nil {
		if err := s.checkFiles(); err != nil {
			return nil, err
		}
	}
	r.OnBegin(func(ctx context.Context) error {
		_, err := s.open(ctx)
		return err
	})
	return s, nil
}

// checkFiles makes the paths absolute and says which file is missing before anything is read.
func (s *source) checkFiles() error {
	f := *s.files
	for _, x := range []struct {
		name string
		path *string
		must bool
	}{{"items", &f.Items, true}, {"attributes", &f.Attributes, true}, {"human_goals", &f.HumanGoals, false}} {
		if *x.path == "" {
			if x.must {
				return fmt.Errorf("files has no %s; give items: items_shuffle.json, attributes: items_ins_v2.json and, for goals that people wrote, human_goals: items_human_ins.json", x.name)
			}
			continue
		}
		*x.path = s.resources.Resolve(*x.path)
		if _, err := os.Stat(*x.path); err != nil {
			return fmt.Errorf("files: %s: %w", x.name, err)
		}
	}
	s.files = &f
	return nil
}

// source makes environments over one catalogue. It is safe for concurrent use.
type source struct {
	resources *resources.Resources
	seed      int64
	products  int
	maxSteps  int
	files     *Files

	mu     sync.Mutex // held while the catalogue is made
	closed bool
	stock  *catalogue
	shop   *shop
}

var (
	_ environments.Source = (*source)(nil)
	_ environments.Tasker = (*source)(nil)
)

// shop is what the environments of a source share. It is not changed after it was made.
type shop struct {
	*catalogue
	index    *search.Index
	maxSteps int
}

const instructions = `You shop in a web shop for what the instruction asks for. Each turn you write one action:
search[words] on the search page, or click[button] for anything that stands in [ ] on the page.
Find a product that fits, open it, click the options that the instruction names, then click[Buy Now]. You can buy once.`

func (s *source) Spec() environments.Spec {
	return environments.Spec{Instructions: instructions, Deterministic: true, InProcess: true}
}

// New makes an environment. The first one waits until the catalogue is there.
func (s *source) New(ctx context.Context, _ string) (environments.Environment, error) {
	shop, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	return &environment{place{shop: shop}}, nil
}

// catalogue is made once; an error is tried again.
func (s *source) catalogue(ctx context.Context) (*catalogue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made(ctx)
}

func (s *source) made(ctx context.Context) (*catalogue, error) {
	if s.closed {
		return nil, errors.New("webshop: the source is closed")
	}
	if s.stock != nil {
		return s.stock, nil
	}
	c, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("webshop: %w", err)
	}
	s.stock = c
	return c, nil
}

func (s *source) read(ctx context.Context) (*catalogue, error) {
	if s.files == nil {
		return generate(s.products, s.seed), nil
	}
	return readFiles(ctx, *s.files, s.products, s.seed)
}

// open makes the catalogue and opens its index.
func (s *source) open(ctx context.Context) (*shop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.made(ctx)
	if err != nil || s.shop != nil {
		return s.shop, err
	}
	x, err := openIndex(ctx, s.resources, c)
	if err != nil {
		return nil, fmt.Errorf("webshop: %w", err)
	}
	s.shop = &shop{c, x, s.maxSteps}
	return s.shop, nil
}

// Tasks are goals of a split in an order that the seed mixes. The field "goal" names one: the id of its product and its number among the goals of
// that product.
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	if split != environments.Train && split != environments.Eval {
		return nil, fmt.Errorf("webshop: there is no split %q; the splits are train and eval", wording.Clip(split, 64))
	}
	c, err := s.catalogue(context.Background())
	if err != nil {
		return nil, err
	}
	goals := c.split(split)
	if n < 0 || n > len(goals) {
		return nil, fmt.Errorf("webshop: %d tasks are asked for, the split %s has %d goals in %d products; ask for fewer, or give more products", n, split, len(goals), len(c.products))
	}
	out := make([]trajectory.Task, n)
	for i := range out {
		name := c.goals[goals[i]].name(c)
		out[i] = trajectory.Task{ID: c.name + "-" + name, Fields: map[string]any{"goal": name}}
	}
	return out, nil
}

// Close closes the index.
func (s *source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	shop := s.shop
	s.shop, s.stock = nil, nil
	if shop == nil {
		return nil
	}
	return shop.index.Close()
}

// goalOf is the goal that a start asks for: its task's, else one of the training split's by the seed.
func (c *catalogue) goalOf(s environments.Start) (int, error) {
	for name := range s.Task.Fields {
		if name != "goal" && !s.Spare(name) {
			return 0, environments.WrongTask("webshop: a task has no field %q; it has goal, the id of a product and the number of the goal, such as %s", wording.Clip(name, 64), c.goals[0].name(c))
		}
	}
	field, ok := s.Task.Fields["goal"]
	if !ok {
		goals := c.split(environments.Train)
		if len(goals) == 0 {
			return 0, errors.New("webshop: there are no goals to train on; give more products")
		}
		return goals[rand.New(rand.NewPCG(uint64(s.Seed), 0x90a1)).IntN(len(goals))], nil
	}
	name, _ := field.(string)
	if g, ok := c.byName[name]; ok {
		return g, nil
	}
	said, _ := json.Marshal(field)
	return 0, environments.WrongTask("webshop: there is no goal %s in this catalogue; a goal is the id of a product and a number, such as %q", wording.Clip(string(said), 64), c.goals[0].name(c))
}

// price as people write it.
func price(p float64) string { return "$" + strconv.FormatFloat(p, 'f', 2, 64) }

// words are the words of a text, in lower case: runs of letters and digits.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !isWord(r) })
}
