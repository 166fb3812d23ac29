// Package voxel is a building site of 8×8×8 blocks as an environment (after the building tasks of arXiv 2411.17255): the agent reads what to build and
// places and removes blocks with tools. A checker takes the place of a person who looks at screenshots.
//
// The reward comes at the end, from the tool done or from the limit of steps, which counts what is not possible also: the intersection of what stands
// there and what was asked for, divided by their union, times the share of blocks that are supported: that hang together, face by face, with one on the ground. An empty site has none.
// A random policy earns 0.001 (TestRandomPolicy).
//
// It does not lend environments or hold deadlines: package environments does.
package voxel

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Params are the parameters in a job.
type Params struct {
	Size  int `json:"size"`  // blocks that a building has at most, 4 to 64; 24
	Steps int `json:"steps"` // of an episode, from size+1 to 1000; 100
}

const edge = 8 // of the site

// Kind is the kind "voxel".
func Kind() environments.Kind {
	return environments.KindOf("voxel", "builds walls, towers, stairs, arches … of blocks on a site of 8×8×8 (size, steps)", Params{Size: 24, Steps: 100}, New)
}

// New is the source of sites with these parameters.
func New(p Params) (environments.Source, error) {
	switch {
	case p.Size < 4 || p.Size > 64:
		return nil, fmt.Errorf("size is %d, and must be 4 to 64", p.Size)
	case p.Steps <= p.Size || p.Steps > 1000:
		return nil, fmt.Errorf("steps is %d, and must be %d, one more than size, to 1000", p.Steps, p.Size+1)
	}
	place := json.RawMessage(`{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer","description":"height, 0 on the ground"},"z":{"type":"integer"}},"required":["x","y","z"],"additionalProperties":false}`)
	spec := environments.Spec{
		Deterministic: true,
		Tools: []tools.Spec{
			{Name: "place", Description: "places a block", Parameters: place, Stateful: true},
			{Name: "remove", Description: "removes a block", Parameters: place, Stateful: true},
			{Name: "done", Description: "says that the building is finished", Parameters: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`), Stateful: true},
		},
		Instructions: "You build with blocks on a site of 8 by 8 by 8. x and z go from 0 to 7 on the ground, y is the height from 0 to 7. " +
			"Place the blocks that are asked for and no others; then call done.",
	}
	return environments.Levels(spec, fmt.Sprintf("voxel-%d", p.Size), func() environments.Environment { return &world{p: p} }, func(level int64) string {
		text, _ := generate(p, level)
		return text
	}), nil
}

var (
	_ environments.Stater = (*world)(nil)
	_ environments.Forker = (*world)(nil)
	_ environments.Solver = (*world)(nil)
)

// cell is the place of a block.
type cell struct{ X, Y, Z int }

func (c cell) inside() bool { return min(c.X, c.Y, c.Z) >= 0 && max(c.X, c.Y, c.Z) < edge }

type blocks map[cell]bool

func (b blocks) box(from, to cell) {
	for x := from.X; x <= to.X; x++ {
		for y := from.Y; y <= to.Y; y++ {
			for z := from.Z; z <= to.Z; z++ {
				b[cell{x, y, z}] = true
			}
		}
	}
}

// sorted are the blocks from the ground up.
func (b blocks) sorted() []cell {
	return slices.SortedFunc(maps.Keys(b), func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.Y, b.Y), cmp.Compare(a.X, b.X), cmp.Compare(a.Z, b.Z))
	})
}

// supported is the share of blocks that hang together with one on the ground; 0 without blocks.
func (b blocks) supported() float64 {
	if len(b) == 0 {
		return 0
	}
	seen, queue := blocks{}, []cell(nil)
	reach := func(c cell) {
		if b[c] && !seen[c] {
			seen[c] = true
			queue = append(queue, c)
		}
	}
	for c := range b {
		if c.Y == 0 {
			reach(c)
		}
	}
	for len(queue) > 0 {
		c := queue[0]
		queue = queue[1:]
		for _, d := range []cell{{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}} {
			reach(cell{c.X + d.X, c.Y + d.Y, c.Z + d.Z})
		}
	}
	return float64(len(seen)) / float64(len(b))
}

// check is the reward of a building.
func check(got, want blocks) float64 {
	both := 0
	for c := range got {
		if want[c] {
			both++
		}
	}
	union := len(got) + len(want) - both
	if union == 0 {
		return 0
	}
	return float64(both) / float64(union) * got.supported()
}

// generate makes a building of Params.Size blocks at most, and the text that asks for it.
func generate(p Params, number int64) (string, blocks) {
	source := rand.New(rand.NewPCG(uint64(number), uint64(p.Size)))
	between := func(least, most int) int { return least + source.IntN(most-least+1) }
	for {
		b := blocks{}
		at := cell{between(0, edge-1), 0, between(0, edge-1)}
		where := fmt.Sprintf("at x=%d, z=%d", at.X, at.Z)
		var text string
		switch source.IntN(6) {
		case 0:
			length, height := between(2, edge), between(1, 5)
			b.box(at, cell{at.X + length - 1, height - 1, at.Z})
			text = fmt.Sprintf("a wall %d blocks long in the direction of x and %d high, one block thick, that begins %s", length, height, where)
		case 1:
			length, height := between(2, edge), between(1, 5)
			b.box(at, cell{at.X, height - 1, at.Z + length - 1})
			text = fmt.Sprintf("a wall %d blocks long in the direction of z and %d high, one block thick, that begins %s", length, height, where)
		case 2:
			height := between(2, edge)
			b.box(at, cell{at.X, height - 1, at.Z})
			text = fmt.Sprintf("a tower of single blocks, %d high, %s", height, where)
		case 3:
			n := between(2, 6)
			for i := range n {
				b.box(cell{at.X + i, 0, at.Z}, cell{at.X + i, i, at.Z})
			}
			text = fmt.Sprintf("stairs of %d columns in the direction of x that begin %s: the first column is 1 block high and each next one is 1 higher, without gaps below", n, where)
		case 4:
			width, height := between(3, 6), between(2, 5)
			b.box(at, cell{at.X, height - 1, at.Z})
			b.box(cell{at.X + width - 1, 0, at.Z}, cell{at.X + width - 1, height - 1, at.Z})
			b.box(cell{at.X, height - 1, at.Z}, cell{at.X + width - 1, height - 1, at.Z})
			text = fmt.Sprintf("an arch in the direction of x that begins %s, %d blocks wide and %d high: two pillars at its ends, and between them only the top row", where, width, height)
		default:
			wide, deep := between(2, 6), between(2, 6)
			b.box(at, cell{at.X + wide - 1, 0, at.Z + deep - 1})
			text = fmt.Sprintf("a floor on the ground, %d blocks in the direction of x and %d in that of z, that begins %s", wide, deep, where)
		}
		fits := len(b) <= p.Size
		for c := range b {
			fits = fits && c.inside()
		}
		if fits {
			return "Build " + text + ".", b
		}
	}
}

// world is one site.
type world struct {
	p     Params
	text  string // asks for the building
	want  blocks // never changed
	got   blocks
	steps int
}

func (w *world) Reset(_ context.Context, s environments.Start) (environments.Observation, error) {
	number, err := environments.LevelOf(s)
	if err != nil {
		return nil, err
	}
	text, want := generate(w.p, number)
	w.text, w.want, w.got, w.steps = text, want, blocks{}, 0
	return environments.Text(text), nil
}

// site lists the blocks, which is the state of the site.
func (w *world) site() string {
	if len(w.got) == 0 {
		return "There are no blocks."
	}
	var b strings.Builder
	b.WriteString("Blocks (x,y,z):")
	for _, c := range w.got.sorted() {
		fmt.Fprintf(&b, " %d,%d,%d", c.X, c.Y, c.Z)
	}
	return b.String()
}

// anchor names the site. That of the start is what the reset says.
func (w *world) anchor() string {
	if len(w.got) == 0 {
		return w.text
	}
	return w.site()
}

// refuse is a step that changes nothing.
func (w *world) refuse(format string, a ...any) environments.Result {
	return w.end(environments.Result{Observation: environments.Text(fmt.Sprintf(format, a...)), Failure: trajectory.FailurePolicy})
}

// end counts a step, and checks the building where the episode is over.
func (w *world) end(r environments.Result) environments.Result {
	w.steps++
	r.Anchor = w.anchor()
	r.Truncated = !r.Terminated && w.steps >= w.p.Steps
	text := w.site()
	if r.Failure != "" {
		text = r.Observation[0].Text
	}
	if r.Over() {
		r.Reward = check(w.got, w.want)
		r.Success = r.Reward == 1
		checked := fmt.Sprintf("The building was checked: %.2f.", r.Reward)
		if r.Failure != "" {
			checked = text + "\n" + checked
		}
		text = checked
	}
	r.Observation = environments.Text(text)
	return r
}

func (w *world) Step(_ context.Context, a environments.Action) (environments.Result, error) {
	var r environments.Result
	switch a.Name {
	case "done":
		r.Terminated = true
	case "place", "remove":
		var raw struct{ X, Y, Z float64 } // 1.0 is an integer of JSON's too
		if err := json.Unmarshal(a.Arguments, &raw); err != nil {
			return w.refuse("The arguments are x, y and z, each 0 to 7."), nil
		}
		for _, v := range []float64{raw.X, raw.Y, raw.Z} {
			if !(v >= 0 && v < edge) {
				return w.refuse("That is outside of the site: x, y and z are 0 to 7."), nil
			}
		}
		c := cell{int(raw.X), int(raw.Y), int(raw.Z)}
		switch place := a.Name == "place"; {
		case place && w.got[c]:
			return w.refuse("There is a block at %d,%d,%d already.", c.X, c.Y, c.Z), nil
		case !place && !w.got[c]:
			return w.refuse("There is no block at %d,%d,%d.", c.X, c.Y, c.Z), nil
		case place:
			w.got[c] = true
		default:
			delete(w.got, c)
		}
	default:
		return w.refuse("The tools are: place, remove, done."), nil
	}
	return w.end(r), nil
}

func (w *world) Close() error { return nil }

func (w *world) Solution(context.Context) (out []environments.Action, _ error) {
	for _, c := range w.want.sorted() {
		out = append(out, environments.Action{Name: "place", Arguments: fmt.Appendf(nil, `{"x":%d,"y":%d,"z":%d}`, c.X, c.Y, c.Z)})
	}
	return append(out, environments.Action{Name: "done", Arguments: json.RawMessage(`{}`)}), nil
}

type kept struct {
	Blocks []cell `json:"blocks"`
	Steps  int    `json:"steps"`
}

func (w *world) State(context.Context) (json.RawMessage, error) {
	return json.Marshal(kept{w.got.sorted(), w.steps})
}

func (w *world) Restore(_ context.Context, data json.RawMessage) error {
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return fmt.Errorf("the state cannot be read: %w", err)
	}
	got := blocks{}
	for _, c := range k.Blocks {
		if !c.inside() {
			return fmt.Errorf("the state has a block at %d,%d,%d, outside of the site", c.X, c.Y, c.Z)
		}
		got[c] = true
	}
	w.got, w.steps = got, k.Steps
	return nil
}

func (w *world) Fork(context.Context) (environments.Environment, error) {
	second := *w
	second.got = maps.Clone(w.got)
	return &second, nil
}
