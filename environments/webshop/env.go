package webshop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// longestQuery is what a search may have, in characters: the instruction of a goal is shorter.
const longestQuery = 500

// visit is where an episode stands: all that State keeps.
type visit struct {
	Goal    string            `json:"goal"`
	Steps   int               `json:"steps"`
	Over    bool              `json:"over,omitempty"`
	Query   string            `json:"query,omitempty"` // of the results that are shown, or lie behind the product
	Page    int               `json:"page,omitempty"`  // of the results, from 1; 0: the search page
	Product string            `json:"product,omitempty"`
	Sub     string            `json:"sub,omitempty"` // description, features or reviews of the product
	Chosen  map[string]string `json:"chosen,omitempty"`
}

// environment is one visitor of the shop.
type environment struct {
	at place
}

var (
	_ environments.Environment = (*environment)(nil)
	_ environments.Stater      = (*environment)(nil)
	_ environments.Forker      = (*environment)(nil)
	_ environments.Chooser     = (*environment)(nil)
	_ environments.Solver      = (*environment)(nil)
)

// Reset opens the search page for the goal of the task, or for one of the training split that the seed draws.
func (e *environment) Reset(_ context.Context, s environments.Start) (environments.Observation, error) {
	g, err := e.at.shop.goalOf(s)
	if err != nil {
		return nil, err
	}
	e.at.goal, e.at.found, e.at.now = g, nil, visit{Goal: e.at.shop.goals[g].name(e.at.shop.catalogue)}
	return environments.Text(e.at.page()), nil
}

var actionPattern = regexp.MustCompile(`(?is)^\s*(search|click)\s*\[(.*)\]\s*$`)

// Step searches or clicks. What is not possible changes nothing, counts as a step, and the observation says why.
func (e *environment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if e.at.now.Goal == "" || e.at.now.Over {
		return environments.Result{}, errors.New("webshop: step without an episode; reset first")
	}
	e.at.now.Steps++
	var r environments.Result
	m := actionPattern.FindStringSubmatch(a.Text)
	var wrong string
	var err error
	switch {
	case m == nil:
		wrong = "that is no action; write search[words] or click[button]"
	case strings.EqualFold(m[1], "search"):
		wrong, err = e.search(ctx, strings.TrimSpace(m[2]))
	default:
		r, wrong, err = e.click(ctx, strings.ToLower(strings.TrimSpace(m[2])))
	}
	if err != nil {
		return environments.Result{}, err
	}
	if wrong != "" {
		r.Failure = trajectory.FailurePolicy
	}
	if r.Terminated {
		e.at.now.Over = true
		return r, nil
	}
	r.Anchor = e.at.anchor()
	text := e.at.page()
	if wrong != "" {
		text = "Nothing happened: " + wrong + ".\n" + text
	}
	if e.at.now.Steps >= e.at.shop.maxSteps {
		e.at.now.Over, r.Truncated = true, true
		text = fmt.Sprintf("The shop closes after %d actions: nothing was bought.", e.at.shop.maxSteps)
	}
	r.Observation = environments.Text(text)
	return r, nil
}

// search shows the first page of what a query finds. wrong says why it is not possible.
func (e *environment) search(ctx context.Context, query string) (wrong string, err error) {
	switch {
	case e.at.now.Page > 0:
		return "there is no search on this page; click[Back to Search] first", nil
	case len(words(query)) == 0:
		return "a search needs words; write search[words]", nil
	case utf8.RuneCountInString(query) > longestQuery:
		return fmt.Sprintf("a search has at most %d characters", longestQuery), nil
	}
	query = strings.ToLower(strings.Join(strings.Fields(query), " "))
	e.at.found, err = e.at.shop.find(ctx, query)
	if err != nil {
		return "", err
	}
	e.at.now.Query, e.at.now.Page = query, 1
	return "", nil
}

// click does what a button of the page does, named in lower case.
func (e *environment) click(ctx context.Context, name string) (r environments.Result, wrong string, err error) {
	v := &e.at.now
	if !slices.Contains(e.at.buttons(), name) && !e.at.isOption(name) {
		near := wording.DidYouMean(name, e.at.buttons())
		if v.Page == 0 {
			near += "; write search[words]"
		}
		return r, fmt.Sprintf("there is no button [%s] here%s", wording.Clip(name, 64), near), nil
	}
	switch {
	case name == buyNow:
		return e.buy(), "", nil
	case name == backToSearch:
		*v = visit{Goal: v.Goal, Steps: v.Steps}
		e.at.found = nil
	case name == next:
		v.Page++
	case name == prev && v.Sub != "":
		v.Sub = ""
	case name == prev && v.Product != "":
		v.Product, v.Chosen = "", nil
	case name == prev:
		v.Page--
	case v.Product == "":
		v.Product = strings.ToUpper(name)
	case slices.Contains(subPages, name):
		v.Sub = name
	default:
		o, value := e.at.option(name)
		v.Chosen = maps.Clone(v.Chosen)
		if v.Chosen == nil {
			v.Chosen = map[string]string{}
		}
		v.Chosen[o] = value
	}
	return r, "", nil
}

// buy ends the episode with the reward of the product that is open.
func (e *environment) buy() environments.Result {
	g := e.at.shop.goals[e.at.goal]
	p := e.at.product()
	s := rate(p, e.at.shop.products[g.product], g, e.at.now.Chosen)
	return environments.Result{
		Observation: environments.Text(fmt.Sprintf("You bought %s. Your score is %.2f of 1.", p.id, s.reward)),
		Reward:      s.reward, Terminated: true, Success: s.reward == 1, Info: s.info(p, g),
		Anchor: e.at.anchor() + " bought",
	}
}

// Close has nothing to release: the shop is the source's.
func (e *environment) Close() error { return nil }

// State is where the episode stands.
func (e *environment) State(context.Context) (json.RawMessage, error) { return json.Marshal(e.at.now) }

// Restore goes on where State was asked. What is found is searched again.
func (e *environment) Restore(ctx context.Context, state json.RawMessage) error {
	var v visit
	if err := json.Unmarshal(state, &v); err != nil {
		return fmt.Errorf("webshop: the state cannot be read: %w", err)
	}
	g, ok := e.at.shop.byName[v.Goal]
	if !ok {
		return fmt.Errorf("webshop: the state is of the goal %q, which this catalogue does not have; give the job the products and the seed that the state was written with", wording.Clip(v.Goal, 64))
	}
	if _, ok := e.at.shop.byID[strings.ToLower(v.Product)]; v.Product != "" && !ok {
		return fmt.Errorf("webshop: the state is at the product %q, which this catalogue does not have", wording.Clip(v.Product, 64))
	}
	var found []int
	if v.Page > 0 {
		var err error
		if found, err = e.at.shop.find(ctx, v.Query); err != nil {
			return err
		}
	}
	if v.Page < 0 || v.Page > max(1, pages(len(found))) {
		return fmt.Errorf("webshop: the state is on page %d of %d", v.Page, pages(len(found)))
	}
	e.at.goal, e.at.found, e.at.now = g, found, v
	return nil
}

// Fork is a second visitor at the same place. Nothing of a visit is changed in place.
func (e *environment) Fork(context.Context) (environments.Environment, error) {
	f := *e
	return &f, nil
}

// Actions are the buttons of the page as click[…]. On the search page they are searches: all words that the instruction asks with, each half of
// them, and each one, without the price and without words that every instruction has.
func (e *environment) Actions(context.Context) ([]string, error) {
	if e.at.now.Over {
		return nil, nil
	}
	if e.at.now.Page == 0 {
		return searches(e.at.shop.goals[e.at.goal].text), nil
	}
	var out []string
	for _, b := range e.at.buttons() {
		out = append(out, "click["+b+"]")
	}
	return out, nil
}

// plain are words that instructions ask with.
var plain = func() map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(`
		a am an and are buy can color find for get i in is it like looking lower me my need of or please price size some show than that the to want
		with would you dollars flavor scent pack style length`) {
		out[w] = true
	}
	return out
}()

// searches are the actions that an instruction suggests.
func searches(text string) []string {
	text, _, _ = strings.Cut(text, ", and price lower than ")
	var asked []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !isWord(r) && r != '-' }) {
		if w = strings.Trim(w, "-"); w != "" && !plain[w] && !slices.Contains(asked, w) {
			asked = append(asked, w)
		}
	}
	if len(asked) == 0 {
		asked = words(text)
	}
	half := len(asked) / 2
	queries := []string{strings.Join(asked, " "), strings.Join(asked[:half], " "), strings.Join(asked[half:], " ")}
	var out []string
	for _, q := range append(queries, asked...) {
		if action := "search[" + wording.Clip(q, longestQuery-1) + "]"; q != "" && !slices.Contains(out, action) {
			out = append(out, action)
		}
	}
	return out
}

// Solution searches for the product of the goal by its title, opens it, chooses what is asked for and buys.
func (e *environment) Solution(ctx context.Context) ([]environments.Action, error) {
	g := e.at.shop.goals[e.at.goal]
	p := e.at.shop.products[g.product]
	chosen := p.fitting(g.options)
	if s := rate(p, p, g, chosen); s.reward < 1 {
		return nil, fmt.Errorf("webshop: the goal %s cannot be reached: its own product gives %.2f", e.at.now.Goal, s.reward)
	}
	for _, query := range []string{p.title, p.title + " " + strings.Join(p.features, " "), p.description} {
		query = wording.Clip(strings.Join(words(query), " "), longestQuery-1)
		products, err := e.at.shop.find(ctx, query)
		if err != nil {
			return nil, err
		}
		at := slices.Index(products, g.product)
		if at < 0 {
			continue
		}
		steps := []string{"search[" + query + "]"}
		for range at / shown {
			steps = append(steps, "click["+next+"]")
		}
		steps = append(steps, "click["+strings.ToLower(p.id)+"]")
		for _, o := range p.options {
			if v, ok := chosen[o.name]; ok {
				steps = append(steps, "click["+p.button(o, v)+"]")
			}
		}
		steps = append(steps, "click["+buyNow+"]")
		if len(steps) > e.at.shop.maxSteps {
			break
		}
		out := make([]environments.Action, len(steps))
		for i, s := range steps {
			out[i] = environments.Action{Text: s}
		}
		return out, nil
	}
	return nil, fmt.Errorf("webshop: the goal %s cannot be reached in max_steps: %d: no search finds its product early enough", e.at.now.Goal, e.at.shop.maxSteps)
}

// fitting are values of options that match what is asked for, by name.
func (p product) fitting(asked []string) map[string]string {
	out := map[string]string{}
	for _, a := range asked {
		for _, o := range p.options {
			if _, taken := out[o.name]; taken {
				continue
			}
			i := slices.Index(o.values, strings.ToLower(a))
			if i < 0 {
				i = slices.IndexFunc(o.values, func(v string) bool { return matchedOptions([]string{a}, map[string]string{o.name: v}) > 0 })
			}
			if i >= 0 {
				out[o.name] = o.values[i]
				break
			}
		}
	}
	return out
}
