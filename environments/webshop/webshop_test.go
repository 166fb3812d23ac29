package webshop

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// cacheFolder is that of all tests, so that the index of 10,000 products is built once.
var cacheFolder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "webshop") })

var update = flag.Bool("update", false, "write testdata")

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := cacheFolder(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func open(t testing.TB, params map[string]any) *source {
	t.Helper()
	dir, err := cacheFolder()
	require.NoError(t, err)
	r := resources.New(resources.Options{Cache: dir})
	s, err := New(t.Context(), r, params)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, r.Close())
	})
	return s.(*source)
}

func visitor(t testing.TB, s *source, start environments.Start) (*environment, string) {
	t.Helper()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	first, err := e.Reset(t.Context(), start)
	require.NoError(t, err)
	return e.(*environment), first[0].Text
}

func step(t testing.TB, e *environment, action string) environments.Result {
	t.Helper()
	r, err := e.Step(t.Context(), environments.Action{Text: action})
	require.NoError(t, err)
	return r
}

// play acts until the end and is the sum of rewards.
func play(t testing.TB, e *environment, choose func(e *environment, observation string) string) (sum float64) {
	t.Helper()
	observation := e.at.page()
	for {
		r := step(t, e, choose(e, observation))
		sum += r.Reward
		if r.Over() {
			return sum
		}
		observation = r.Observation[0].Text
	}
}

func TestSolverReachesFullRewardOnHeldOutGoals(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	tasks, err := s.Tasks(environments.Eval, 500)
	require.NoError(t, err)
	for _, task := range tasks {
		e, _ := visitor(t, s, environments.Start{Task: task})
		actions, err := e.Solution(t.Context())
		require.NoError(t, err, task.ID)
		i := 0
		sum := play(t, e, func(*environment, string) string { i++; return actions[i-1].Text })
		require.InDelta(t, 1, sum, 0, task.ID)
		require.Len(t, actions, i, "the purchase is the last action")
	}
}

// TestRandomPolicy chooses uniformly among Actions, up to max_steps: doc of Kind's page says what it reaches.
func TestRandomPolicy(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	tasks, err := s.Tasks(environments.Eval, 500)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(7, 7))
	sum, bought := 0.0, 0
	for _, task := range tasks {
		e, _ := visitor(t, s, environments.Start{Task: task})
		sum += play(t, e, func(e *environment, _ string) string {
			actions, err := e.Actions(t.Context())
			require.NoError(t, err)
			return actions[r.IntN(len(actions))]
		})
		if e.at.now.Steps < 15 {
			bought++
		}
	}
	t.Logf("a random policy reaches %.3f on %d held-out goals and buys in %d", sum/500, len(tasks), bought)
	require.LessOrEqual(t, sum/500, 0.2)
	require.Positive(t, sum)
}

// TestReaderPolicy knows nothing but what stands on the pages: it searches for the words of the instruction, opens the first product below the limit,
// clicks the options that the instruction names, and buys.
func TestReaderPolicy(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	tasks, err := s.Tasks(environments.Eval, 500)
	require.NoError(t, err)
	sum := 0.0
	for _, task := range tasks {
		e, _ := visitor(t, s, environments.Start{Task: task})
		sum += play(t, e, readInstruction(t))
	}
	t.Logf("reading the instruction reaches %.3f on %d held-out goals", sum/500, len(tasks))
	require.Greater(t, sum/500, 0.6)
}

func readInstruction(t *testing.T) func(e *environment, page string) string {
	return func(e *environment, page string) string {
		instruction, page, _ := strings.Cut(page, "\n")
		_, limited, ok := strings.Cut(instruction, "price lower than ")
		upper := 1e6
		if ok {
			_, err := fmt.Sscanf(limited, "%f", &upper)
			require.NoError(t, err)
		}
		actions, err := e.Actions(t.Context())
		require.NoError(t, err)
		switch {
		case strings.HasPrefix(page, "Search page"):
			return actions[0]
		case strings.HasPrefix(page, "Page "):
			for line := range strings.SplitSeq(page, "\n") {
				id, _, _ := strings.Cut(strings.TrimPrefix(line, "["), "]")
				var dollars float64
				if _, err := fmt.Sscanf(line[strings.LastIndex(line, "$")+1:], "%f", &dollars); err == nil && dollars <= upper {
					return "click[" + id + "]"
				}
			}
			return actions[0]
		}
		_, asked, _ := strings.Cut(instruction, " with ")
		for part := range strings.SplitSeq(strings.TrimSuffix(asked, "."), ", and ") {
			if _, value, ok := strings.Cut(part, ": "); ok && strings.Contains(page, "["+value+"]") && !strings.Contains(page, "(chosen: "+value+")") {
				return "click[" + value + "]"
			}
		}
		return "click[Buy Now]"
	}
}

func TestSplitsShareNoProduct(t *testing.T) {
	t.Parallel()
	for _, params := range []map[string]any{nil, {"products": 300, "seed": 5}, {"files": original()}} {
		s := open(t, params)
		c, err := s.catalogue(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, c.train)
		require.Len(t, c.goals, len(c.train)+len(c.eval))
		of := map[int]string{}
		for _, split := range []string{environments.Train, environments.Eval} {
			tasks, err := s.Tasks(split, len(c.split(split)))
			require.NoError(t, err)
			ids := map[string]bool{}
			for _, task := range tasks {
				require.False(t, ids[task.ID], task.ID)
				ids[task.ID] = true
				p := c.goals[c.byName[task.Fields["goal"].(string)]].product
				require.Contains(t, []string{"", split}, of[p])
				of[p] = split
			}
		}
		_, err = s.Tasks(environments.Eval, len(c.eval)+1)
		require.ErrorContains(t, err, fmt.Sprintf("the split eval has %d goals", len(c.eval)))
	}
	_, err := open(t, nil).Tasks("test", 1)
	require.ErrorContains(t, err, `no split "test"`)
}

// The catalogue of a seed does not change: stores of runs name its goals.
func TestGeneratedCatalogue(t *testing.T) {
	t.Parallel()
	a, b, other := generate(10_000, 1), generate(10_000, 1), generate(10_000, 2)
	require.Equal(t, a, b)
	require.NotEqual(t, a.products[0], other.products[0])
	require.GreaterOrEqual(t, len(a.eval), 500)
	require.Len(t, a.byID, 10_000)
	titles := map[string]bool{}
	for i, p := range a.products {
		titles[p.title] = true
		require.Positive(t, p.price, p.title)
		require.LessOrEqual(t, len(p.id), 10)
		require.NotEmpty(t, nouns(p.title))
		for _, o := range p.options {
			for _, v := range o.values {
				require.Equal(t, v, p.button(o, v), "a value names its button")
			}
		}
		g := a.goals[i]
		require.Contains(t, g.text, p.query)
		require.Less(t, p.price, g.priceUpper)
	}
	require.Len(t, titles, 10_000)
	require.Equal(t, "webshop-10000-1-"+a.goals[a.eval[0]].name(a), must(open(t, nil).Tasks(environments.Eval, 1))[0].ID)
	var text strings.Builder
	for i := range 3 {
		fmt.Fprintf(&text, "%+v\n%+v\n", a.products[i], a.goals[i])
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/first_products.golden", []byte(text.String()), 0o644))
	}
	golden, err := os.ReadFile("testdata/first_products.golden")
	require.NoError(t, err)
	require.Equal(t, string(golden), text.String())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	c := must(s.catalogue(t.Context()))
	g := slices.IndexFunc(c.goals, func(g goal) bool { return c.products[g.product].query == "hiking boots" })
	start := environments.Start{Task: trajectory.Task{ID: "x", Fields: map[string]any{"goal": c.goals[g].name(c), "answer": "1"}}}
	e, first := visitor(t, s, start)
	require.Equal(t, "Instruction: "+c.goals[g].text+"\nSearch page. Write search[words].", first)
	wrong := func(action, why string) {
		t.Helper()
		before, page := e.at.now, e.at.page()
		r := step(t, e, action)
		require.Equal(t, trajectory.FailurePolicy, r.Failure, action)
		require.Contains(t, r.Observation[0].Text, "Nothing happened: ")
		require.Contains(t, r.Observation[0].Text, why)
		require.Contains(t, r.Observation[0].Text, page, "it goes on to say what is possible")
		before.Steps, e.at.now.Steps = 0, 0
		require.Equal(t, before, e.at.now)
	}
	ok := func(action string, has ...string) {
		t.Helper()
		r := step(t, e, action)
		require.Empty(t, r.Failure, r.Observation)
		require.False(t, r.Over())
		for _, h := range has {
			require.Contains(t, r.Observation[0].Text, h)
		}
		e.at.now.Steps = 0
	}
	for _, action := range []string{"", "hello", "search", "search hiking boots", "buy[x]", "search[]", "search[ ! ]", "click[]", "click[buy now]", "search[" + strings.Repeat("x", 501) + "]", strings.Repeat("[", 1<<16), "\x00\xff"} {
		wrong(action, "")
	}
	wrong("click[next >]", "there is no button [next >] here; write search[words]")

	ok("Search[ Hiking  BOOTS ]", "Page 1 of 5, 50 products", "hiking boots", "[Next >] [Back to Search]")
	require.Equal(t, "hiking boots", e.at.now.Query)
	wrong("search[boots]", "click[Back to Search] first")
	wrong("click[< prev]", "no button [< prev]")
	page1 := e.at.page()
	ok("click[Next >]", "Page 2 of 5", "[Next >] [< Prev] [Back to Search]")
	for range 3 {
		ok("click[next >]")
	}
	require.NotContains(t, e.at.page(), "[Next >]")
	for range 4 {
		ok("click[< Prev]")
	}
	require.Equal(t, page1, e.at.page())

	p := c.products[e.at.listed()[2]]
	wrong("click["+c.products[e.at.found[40]].id+"]", "no button")
	ok("click["+strings.ToLower(p.id)+"]", p.id+": "+p.title, "Price: "+price(p.price), "color: ["+p.options[0].values[0]+"] [", "[Description] [Features] [Reviews] [Buy Now] [< Prev] [Back to Search]")
	ok("click["+p.options[1].values[1]+"]", "size (chosen: "+p.options[1].values[1]+"):")
	ok("click[size: "+p.options[1].values[0]+"]", "size (chosen: "+p.options[1].values[0]+"):")
	for _, sub := range []string{"Description", "Features", "Reviews"} {
		ok("click["+sub+"]", sub+" of "+p.id, "[< Prev] [Back to Search]")
		wrong("click[buy now]", "no button [buy now]")
		wrong("click["+p.options[1].values[0]+"]", "no button")
		ok("click[< Prev]", "size (chosen: "+p.options[1].values[0]+"):")
	}
	ok("click[< prev]", page1)
	require.Empty(t, e.at.now.Chosen)
	ok("click[back to search]", "Search page")
	ok("search[qqqq]", "No product was found.\n[Back to Search]")
	ok("click[back to search]")
	require.Equal(t, visit{Goal: e.at.now.Goal}, e.at.now)

	ok("search[hiking boots]")
	ok("click[" + p.id + "]")
	r := step(t, e, "click[Buy Now]")
	require.True(t, r.Terminated)
	require.Equal(t, r.Reward, r.Info["reward"])
	require.Contains(t, r.Observation[0].Text, fmt.Sprintf("You bought %s. Your score is %.2f of 1.", p.id, r.Reward))
	b, err := json.Marshal(r.Info)
	require.NoError(t, err)
	require.Contains(t, string(b), `"r_type":1`)
	_, err = e.Step(t.Context(), environments.Action{Text: "click[buy now]"})
	require.ErrorContains(t, err, "reset first")
	require.Empty(t, must(e.Actions(t.Context())))
}

func TestEpisodeEndsAtMaxSteps(t *testing.T) {
	s := open(t, map[string]any{"products": 300, "max_steps": 3})
	e, _ := visitor(t, s, environments.Start{})
	require.False(t, step(t, e, "x").Over())
	require.False(t, step(t, e, "search[x]").Over())
	r := step(t, e, "x")
	require.True(t, r.Truncated)
	require.False(t, r.Terminated)
	require.Zero(t, r.Reward)
	require.Contains(t, r.Observation[0].Text, "The shop closes after 3 actions")
	_, err := e.Step(t.Context(), environments.Action{Text: "x"})
	require.Error(t, err)
	_, err = e.Reset(t.Context(), environments.Start{})
	require.NoError(t, err)
	require.False(t, step(t, e, "x").Over())
}

// The same start and actions give the same episode, also from a state in another source, and in a fork; anchors are equal where pages are.
func TestEpisodesRepeat(t *testing.T) {
	s, other := open(t, map[string]any{"products": 1000}), open(t, map[string]any{"products": 1000})
	for seed := range int64(20) {
		start := environments.Start{Seed: seed}
		a, first := visitor(t, s, start)
		b, again := visitor(t, other, start)
		require.Equal(t, first, again)
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		pages := map[string]string{}
		for range 15 {
			actions := must(a.Actions(t.Context()))
			require.Equal(t, actions, must(b.Actions(t.Context())))
			action := actions[r.IntN(len(actions))]
			state, err := a.State(t.Context())
			require.NoError(t, err)
			restored, _ := visitor(t, other, start)
			require.NoError(t, restored.Restore(t.Context(), state))
			forked, err := a.Fork(t.Context())
			require.NoError(t, err)
			want := step(t, a, action)
			require.Equal(t, want, step(t, restored, action))
			require.Equal(t, want, step(t, forked.(*environment), action), "a fork does not see what the other did")
			require.Equal(t, want, step(t, b, action))
			if want.Over() {
				break
			}
			if text, met := pages[want.Anchor]; met {
				require.Equal(t, text, want.Observation[0].Text)
			}
			pages[want.Anchor] = want.Observation[0].Text
		}
	}
	e, _ := visitor(t, s, environments.Start{})
	require.ErrorContains(t, e.Restore(t.Context(), json.RawMessage(`{"goal":"nothing"}`)), `the goal "nothing"`)
	require.ErrorContains(t, e.Restore(t.Context(), json.RawMessage(`{"goal":"`+e.at.now.Goal+`","page":1,"product":"b"}`)), `the product "b"`)
	require.ErrorContains(t, e.Restore(t.Context(), json.RawMessage(`{"goal":"`+e.at.now.Goal+`","page":9,"query":"hiking boots"}`)), `page 9 of `)
	require.ErrorContains(t, e.Restore(t.Context(), json.RawMessage(`7`)), "the state cannot be read")
}

func TestVisitorsShareAShop(t *testing.T) {
	s := open(t, map[string]any{"products": 300})
	tasks := must(s.Tasks(environments.Eval, 40))
	var all sync.WaitGroup
	for _, task := range tasks {
		all.Go(func() {
			e, err := s.New(context.Background(), "test")
			if err == nil {
				_, err = e.Reset(context.Background(), environments.Start{Task: task})
			}
			if err != nil {
				t.Error(err)
				return
			}
			actions, err := e.(*environment).Solution(context.Background())
			if err != nil {
				t.Error(err)
			}
			var last environments.Result
			for _, a := range actions {
				if last, err = e.Step(context.Background(), a); err != nil {
					t.Error(err)
				}
			}
			if last.Reward != 1 {
				t.Errorf("%s: %v", task.ID, last.Reward)
			}
		})
	}
	all.Wait()
}

func TestWrongStartsAndParameters(t *testing.T) {
	s := open(t, map[string]any{"products": 300})
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	for fields, want := range map[string]string{
		`{"goals":"x"}`: `no field "goals"`, `{"goal":"x"}`: `there is no goal "x"`, `{"goal":7}`: `there is no goal 7`,
	} {
		var f map[string]any
		require.NoError(t, json.Unmarshal([]byte(fields), &f))
		_, err := e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: f}})
		require.ErrorContains(t, err, want)
	}
	_, err = e.Step(t.Context(), environments.Action{Text: "search[x]"})
	require.ErrorContains(t, err, "reset first")
	r := resources.New(resources.Options{Cache: t.TempDir()})
	for params, want := range map[string]string{
		`{"products":99}`:                  "products is 99",
		`{"products":2000000}`:             "products is 2000000",
		`{"max_steps":0}`:                  "max_steps is 0",
		`{"size":1}`:                       `unknown field "size"`,
		`{"products":"many"}`:              "products must be of type int",
		`{"files":{}}`:                     "files has no items",
		`{"files":{"items":"x.json"}}`:     "files: items: stat x.json",
		`{"files":{"items":"webshop.go"}}`: "files has no attributes",
	} {
		var p map[string]any
		require.NoError(t, json.Unmarshal([]byte(params), &p))
		_, err := Kind().New(t.Context(), r, p)
		require.ErrorContains(t, err, want, params)
	}
	require.NoError(t, s.Close())
	_, err = s.New(t.Context(), "test")
	require.ErrorContains(t, err, "the source is closed")
}

func original() map[string]any {
	return map[string]any{"items": "testdata/items.json", "attributes": "testdata/attributes.json", "human_goals": "testdata/human.json"}
}

func TestOriginalFiles(t *testing.T) {
	s := open(t, map[string]any{"files": original()})
	c := must(s.catalogue(t.Context()))
	require.Len(t, c.products, 6, "without the ASINs nan, too long and twice")
	p := c.products[0]
	require.Equal(t, "B0BOOT0001", p.id)
	require.Equal(t, []string{"Clothing", "Shoes", "Boots"}, p.path)
	require.InDelta(t, 39.99, p.price, 0)
	require.Equal(t, []option{{"color", []string{"black | brown", "red"}}, {"size", []string{"8", "9.5"}}}, p.options)
	require.Equal(t, []string{"water resistant", "rubber sole"}, p.attributes)
	two := c.products[1]
	require.GreaterOrEqual(t, two.price, 1009.5)
	require.LessOrEqual(t, two.price, 1019.5)
	require.InDelta(t, 100, c.products[2].price, 0)
	g := c.goals[0]
	require.True(t, strings.HasPrefix(g.text, "I want water resistant boots in red, size 9.5, and price lower than "), g.text)
	require.Equal(t, []string{"9.5", "red"}, g.options)
	require.Len(t, c.goals, 6, "without the one that asks for no attribute, and of products that are not there")
	require.Equal(t, "B0BOOT0001-2", c.goals[1].name(c))
	for _, g := range c.goals {
		e, _ := visitor(t, s, environments.Start{Task: trajectory.Task{Fields: map[string]any{"goal": g.name(c)}}})
		actions, err := e.Solution(t.Context())
		require.NoError(t, err)
		i := 0
		require.InDelta(t, 1, play(t, e, func(*environment, string) string { i++; return actions[i-1].Text }), 0)
	}

	made := original()
	delete(made, "human_goals")
	c = must(open(t, map[string]any{"files": made, "products": 2}).catalogue(t.Context()))
	require.Len(t, c.products, 2)
	require.Len(t, c.goals, 4+1)
	require.Equal(t, []string{"black | brown", "9.5"}, c.goals[1].options)
	require.Contains(t, c.goals[1].text, "find boots that are water resistant with color: black | brown, and size: 9.5, and price lower than ")
	require.Equal(t, "find a desk", c.goals[4].text, "a desk beyond 1,000 dollars has no limit")
	require.InDelta(t, noLimit, c.goals[4].priceUpper, 0)
}

// A product that has a title alone is found by it.
func TestProductWithoutTexts(t *testing.T) {
	items := filepath.Join(t.TempDir(), "items.json")
	require.NoError(t, os.WriteFile(items, []byte(`[{"asin":"B0BOOT0001","name":"Boots","full_description":"Boots for rain."},
{"asin":"B0MUG00001","name":"Cooper Coffee Mug","full_description":" ","small_description":[""],"customization_options":""}]`), 0o600))
	files := original()
	files["items"] = items
	s := open(t, map[string]any{"files": files})
	for query, button := range map[string]string{"rain": "[B0BOOT0001]", "coffee mug": "[B0MUG00001]"} {
		e, _ := visitor(t, s, environments.Start{Task: trajectory.Task{Fields: map[string]any{"goal": "B0BOOT0001-0"}}})
		r := step(t, e, "search["+query+"]")
		require.Contains(t, r.Observation[0].Text, button)
	}
}

func TestBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := `[{"asin":"B1","name":"x"}]`
	for name, c := range map[string]struct{ items, attributes, human, want string }{
		"no list":         {`{"asin":"B1"}`, `{}`, `{}`, "items.json: line 1: the file begins with {, not with ["},
		"cut":             {"[\n{\"asin\":\"B1\",\"name\":\"x\"},\n{\"asin\"", `{}`, `{}`, "items.json: line 3: the file ends too early"},
		"type":            {"[\n{\"asin\":\"B1\",\"name\":\"x\"},\n{\"asin\":7}]", `{}`, `{}`, "items.json: line 3: element 1: json: cannot unmarshal number"},
		"price":           {"[\n\n{\"asin\":\"B1\",\"pricing\":\"$x\"}]", `{}`, `{}`, `items.json: line 3: element 0: B1: pricing "$x" is no price`},
		"no asin":         {`[{"name":"x"}]`, `{}`, `{}`, `items.json: line 1: element 0: it has no "asin"`},
		"no text":         {"[\n{\"asin\":\"B1\",\"name\":\" \",\"query\":\"mug\"}]", `{}`, `{}`, `items.json: line 2: element 0: B1: it has no "name" and no other text, so that no search finds it; leave it out`},
		"attributes":      {good, "{\"B1\":\n7}", `{}`, `attributes.json: line 2: key 0, "B1": json: cannot unmarshal number`},
		"attributes list": {good, "[]", `{}`, `attributes.json: line 1: the file begins with [, not with {`},
		"human":           {good, "{}", "{\"B0\":[],\n\"B1\":{}}", `human.json: line 2: key 1, "B1": json: cannot unmarshal object`},
		"empty":           {"", "{}", "{}", "items.json: line 1: the file ends too early"},
		"no goal":         {good, "{}", "{}", "none of the 1 products has a goal in"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, map[string]any{"files": map[string]any{"items": write("items.json", c.items), "attributes": write("attributes.json", c.attributes), "human_goals": write("human.json", c.human)}})
			_, err := s.New(t.Context(), "test")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "webshop: ")
		})
	}
}

// The catalogue is read when the run begins, so that a broken file ends it before the first rollout, and not where a job is only looked at.
func TestReadWhenTheRunBegins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "items.json")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	r := resources.New(resources.Options{Cache: t.TempDir()})
	_, err := New(t.Context(), r, map[string]any{"files": map[string]any{"items": path, "attributes": path}})
	require.NoError(t, err)
	require.ErrorContains(t, r.Begin(t.Context()), "the file ends too early")
}

// BenchmarkStep plays random actions on 10,000 products.
func BenchmarkStep(b *testing.B) {
	start := time.Now()
	s := open(b, nil)
	e, _ := visitor(b, s, environments.Start{})
	b.ReportMetric(time.Since(start).Seconds(), "open-s")
	r := rand.New(rand.NewPCG(1, 1))
	var took []time.Duration
	seed := int64(0)
	for b.Loop() {
		b.StopTimer()
		actions := must(e.Actions(b.Context()))
		if len(actions) == 0 {
			seed++
			must(e.Reset(b.Context(), environments.Start{Seed: seed}))
			actions = must(e.Actions(b.Context()))
		}
		action := environments.Action{Text: actions[r.IntN(len(actions))]}
		from := time.Now()
		b.StartTimer()
		must(e.Step(b.Context(), action))
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
}

// BenchmarkSearch searches for the words of instructions on 10,000 products: the longest of all steps.
func BenchmarkSearch(b *testing.B) {
	s := open(b, nil)
	e, _ := visitor(b, s, environments.Start{})
	seed := int64(0)
	for b.Loop() {
		b.StopTimer()
		seed++
		must(e.Reset(b.Context(), environments.Start{Seed: seed}))
		action := environments.Action{Text: must(e.Actions(b.Context()))[0]}
		b.StartTimer()
		must(e.Step(b.Context(), action))
	}
}

// BenchmarkOpen makes the catalogue of 10,000 products and its index: the first time, and with the index of an earlier run.
func BenchmarkOpen(b *testing.B) {
	for _, name := range []string{"first", "again"} {
		b.Run(name, func(b *testing.B) {
			cache := b.TempDir()
			open := func() *source {
				if name == "first" {
					cache = b.TempDir()
				}
				return must(New(b.Context(), resources.New(resources.Options{Cache: cache}), nil)).(*source)
			}
			before := open()
			must(before.open(b.Context()))
			require.NoError(b, before.Close())
			for b.Loop() {
				b.StopTimer()
				s := open()
				b.StartTimer()
				must(s.open(b.Context()))
				b.StopTimer()
				require.NoError(b, s.Close())
				b.StartTimer()
			}
		})
	}
}
