package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// maxCode is the longest code that is run, in bytes: the kernel takes no longer argument.
const maxCode = 100 << 10

type codeTestsParams struct {
	Tests   string  `json:"tests"`   // field of the task: Python text, a list of such, or a list of {input, output}; default tests
	Setup   string  `json:"setup"`   // field with Python text that runs before the code; "" (default): none
	Entry   string  `json:"entry"`   // field with the function that a test's check(candidate) gets, as in HumanEval; "" (default): none
	Partial bool    `json:"partial"` // the value is the share of the tests that pass; default: 1 when all pass, else 0
	Timeout float64 `json:"timeout"` // seconds of the processor's time of a run; default 10
	Wall    float64 `json:"wall"`    // seconds of a run by the clock; default 3 times timeout, at least 20
}

type codeTests struct {
	codeTestsParams
	box       *sandbox.Sandbox
	resources *resources.Resources
}

// A run may take wallTimes as long by the clock as of the processor's time, and shortestWall seconds in any case: a sleeping answer holds a
// place of the gradings for no longer, and a right one on a busy machine, which takes a second of the processor, has time enough.
const (
	wallTimes    = 3
	shortestWall = 20
)

var _ = declareReward("code_tests", newCodeTests, "a task's tests of the code, run in the sandbox")

// newCodeTests makes code_tests: it runs the tests of the task on the trajectory's code, in the sandbox. The code is the last fenced block of
// the final answer, else the answer itself; without an answer the last fenced block that the model wrote. A test of Python text passes when
// it ends without an exception, with the functions test_… and the classes of unittest that it defines; a test {input, output} passes when
// the code as a program writes the output, spaces at the ends of lines aside. What judges never runs in the process of the code: see
// runTexts. Parts: passed, the share of the tests; code, 1 when there was any; tampered, 1 when the code did what only deception needs;
// refused, the share of the tests that failed because what they do with the code's objects does not cross between processes or would let
// the code say whether it is right; trusted, the share of the tests that passed with a comparison of two objects of the code, which the code
// makes itself.
func newCodeTests(b *Builder, params map[string]any) (Reward, error) {
	p := codeTestsParams{Tests: "tests", Timeout: 10}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Timeout <= 0:
		return nil, fmt.Errorf("the parameter timeout is %v; allowed is more than 0 seconds", p.Timeout)
	case p.Wall < 0 || p.Wall > 0 && p.Wall < p.Timeout:
		return nil, fmt.Errorf("the parameter wall is %v; allowed is at least timeout, %v seconds, or 0 for %d times that, at least %d", p.Wall, p.Timeout, wallTimes, shortestWall)
	}
	box, err := b.Resources.Sandbox(b.Context)
	if err != nil {
		return nil, err
	}
	c := codeTests{p, box, b.Resources}
	return needs(c.needs, NewFuncParts("code_tests", c.score)), nil
}

// needs says what a task lacks.
func (c codeTests) needs(task trajectory.Task) error {
	_, _, err := c.tests(task)
	for _, name := range []string{c.Setup, c.Entry} {
		if err == nil && name != "" {
			_, err = field(task, name)
		}
	}
	return err
}

func (c codeTests) score(ctx context.Context, in Input) (Score, error) {
	texts, pairs, err := c.tests(in.Task)
	if err != nil {
		return Score{}, err
	}
	var setup, entry string
	for name, into := range map[string]*string{c.Setup: &setup, c.Entry: &entry} {
		if name != "" {
			if *into, err = field(in.Task, name); err != nil {
				return Score{}, err
			}
		}
	}
	out := Score{Parts: map[string]float64{"passed": 0, "code": 0, "tampered": 0, "refused": 0, "trusted": 0}}
	code, ok := trajectoryCode(in.Trajectory)
	if !ok || len(code)+len(setup) > maxCode || strings.ContainsRune(code, 0) { // Python runs nothing with a zero byte
		return out, nil
	}
	out.Parts["code"] = 1
	defer offTheClock(ctx)() // waiting depends on the others, and the runs have limits of their own
	leave, err := c.resources.Grade(ctx)
	if err != nil {
		return Score{}, err
	}
	defer leave()
	var got graded
	if pairs != nil {
		got.passed, err = c.runPairs(ctx, setup, code, pairs)
	} else {
		got, err = c.runTexts(ctx, codeRequest{setup, code, entry, texts})
	}
	if fault := (taskFault{}); errors.As(err, &fault) {
		name := c.Tests
		if fault.setup {
			name = c.Setup
		}
		err = fmt.Errorf("task %q: the field %q: %w", in.Task.ID, name, err)
	}
	if err != nil {
		return Score{}, err
	}
	share := float64(got.passed) / float64(len(texts)+len(pairs))
	out.Parts["refused"] = float64(got.refused) / float64(len(texts)+len(pairs))
	out.Parts["trusted"] = float64(got.trusted) / float64(len(texts)+len(pairs))
	if got.tampered {
		out.Parts["tampered"] = 1
	}
	out.Parts["passed"] = share
	if c.Partial || share == 1 {
		out.Value = share
	}
	return out, nil
}

type inputOutput struct{ input, output string }

// tests are those of the task, of one of two forms.
func (c codeTests) tests(task trajectory.Task) ([]string, []inputOutput, error) {
	wrong := func() error {
		return fmt.Errorf("task %q: the field %q must be Python text, a list of such, or a list of {input, output}", task.ID, c.Tests)
	}
	v, ok := task.Fields[c.Tests]
	if !ok {
		return nil, nil, fmt.Errorf("task %q has no field %q; add the column to the data or name another one", task.ID, c.Tests)
	}
	asText := fmt.Errorf("task %q: the field %q holds a JSON list or object as text, which any code would pass; store the list itself in the task: of Python texts, or of {input, output}", task.ID, c.Tests)
	if text, ok := v.(string); ok && strings.TrimSpace(text) != "" {
		if jsonText(text) {
			return nil, nil, asText
		}
		return []string{text}, nil, nil
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, nil, wrong()
	}
	var texts []string
	var pairs []inputOutput
	for _, item := range list {
		switch item := item.(type) {
		case string:
			if jsonText(item) {
				return nil, nil, asText
			}
			texts = append(texts, item)
		case map[string]any:
			input, okIn := item["input"].(string)
			output, okOut := item["output"].(string)
			if !okIn || !okOut {
				return nil, nil, wrong()
			}
			pairs = append(pairs, inputOutput{input, output})
		default:
			return nil, nil, wrong()
		}
	}
	if texts != nil && pairs != nil {
		return nil, nil, wrong()
	}
	return texts, pairs, nil
}

// jsonText says whether a text is a list or an object of JSON. It is an expression of Python too, and asserts nothing.
func jsonText(text string) bool {
	text = strings.TrimSpace(text)
	return (strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{")) && json.Valid([]byte(text))
}

// trajectoryCode is the code that a trajectory ends with.
func trajectoryCode(t *trajectory.Trajectory) (string, bool) {
	if answer, turn := t.FinalAnswer(); turn >= 0 {
		if code, ok := lastBlock(answer); ok {
			return code, true
		}
		return answer, strings.TrimSpace(answer) != ""
	}
	last := t.Last() // what stands behind it is not what the agent wrote
	if t.Cut() {     // what a token limit cut is not what it ends with
		last--
	}
	for i := last; i >= 0; i-- {
		if code, ok := lastBlock(t.Turns[i].Completion); ok {
			return code, true
		}
	}
	return "", false
}

// opening is a line that opens a fenced block: the mark stands first in it, or behind text and with a language behind it at most.
var opening = regexp.MustCompile("^(?:[ \\t]*(`{3,})[^`]*|(.*[^`])(`{3,})[\\w+.#-]*[ \\t]*)$")

// lastBlock is the code of the last fenced block of a text that is closed.
func lastBlock(text string) (code string, found bool) {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for len(lines) > 0 {
		m := opening.FindStringSubmatch(lines[0])
		indent := len(lines[0]) - len(strings.TrimLeft(lines[0], " \t"))
		lines = lines[1:]
		if m == nil || strings.Contains(m[2], "```") { // text, or code within it
			continue
		}
		body, rest, closed := closeBlock(lines, m[1]+m[3], indent)
		if closed {
			code, found, lines = dedent(body), true, rest
		}
	}
	return code, found
}

// prose is what stands behind the mark in a line that closes a block and goes on with text: "```." and "``` is wrong", but not "```python".
var prose = regexp.MustCompile("^(?:[^\\w\\s{`\"']|[ \\t]+\\S+[ \\t]+\\S)")

// closeBlock splits lines at the end of the block that stands first in them: the line that is the mark alone, or the mark and text, indented at
// most three columns deeper than the opening one, or ends with the mark; where there is none, the next mark.
func closeBlock(lines []string, mark string, indent int) (body, rest []string, closed bool) {
	for i, line := range lines {
		text := strings.TrimLeft(line, " \t")
		if after, first := strings.CutPrefix(text, mark); first && len(line)-len(text) <= indent+3 && prose.MatchString(after) {
			return lines[:i], append([]string{after}, lines[i+1:]...), true
		}
		before, ends := strings.CutSuffix(strings.TrimRight(line, " \t"), mark)
		alone := strings.Trim(before, " \t`") == ""
		switch {
		case !ends || alone && len(strings.TrimRight(before, "`")) > indent+3 || !alone && strings.Contains(before, mark):
		case alone:
			return lines[:i], lines[i+1:], true
		default:
			return append(slices.Clone(lines[:i]), before), lines[i+1:], true
		}
	}
	for i, line := range lines {
		if before, after, ok := strings.Cut(line, mark); ok {
			return append(slices.Clone(lines[:i]), before), append([]string{after}, lines[i+1:]...), true
		}
	}
	return nil, nil, false
}

// dedent joins lines without the white space that all of them begin with, as those of a block in a list do.
func dedent(lines []string) string {
	common, some := "", false
	for _, line := range lines {
		text := strings.TrimLeft(line, " \t")
		if text == "" {
			continue
		}
		if space := line[:len(line)-len(text)]; !some {
			common, some = space, true
		} else {
			for !strings.HasPrefix(space, common) {
				common = common[:len(common)-1]
			}
		}
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimPrefix(line, common) + "\n")
	}
	return b.String()
}

// limits bind the processor's time; the wall clock, which depends on what else the machine does, is there for code that sleeps.
func (c codeTests) limits() sandbox.Limits {
	second := float64(time.Second)
	return sandbox.Limits{Wall: time.Duration(c.wall() * second), CPU: time.Duration(c.Timeout * second)}
}

func (c codeTests) wall() float64 {
	if c.Wall > 0 {
		return c.Wall
	}
	return max(wallTimes*c.Timeout, shortestWall)
}

// behindSetup runs the two texts that are its arguments one behind the other, as one program: one text would not let the code begin with an
// import from __future__.
const behindSetup = `[exec(compile(text, "<string>", "exec"), globals()) for text in (__import__("sys").argv.pop(1), __import__("sys").argv.pop(1))]`

// runPairs counts the inputs for which the program, behind the setup, writes the right output. Unless the share counts, the first wrong one ends it; one
// that is late by the clock ends it always.
func (c codeTests) runPairs(ctx context.Context, setup, code string, pairs []inputOutput) (int, error) {
	args := []string{"python3", "-I", "-c", code}
	if setup != "" {
		args = []string{"python3", "-I", "-c", behindSetup, setup, code}
	}
	n := 0
	for _, p := range pairs {
		r, err := c.box.Run(ctx, sandbox.Program{Args: args, Stdin: []byte(p.input), Limits: c.limits()})
		if err != nil {
			return 0, err
		}
		if r.Exit == 0 && r.Signal == "" && r.Dropped == 0 && sameOutput(string(r.Stdout), p.output) {
			n++
		} else if !c.Partial || r.TimedOut { // what sleeps through one run is not waited for in the others
			break
		}
	}
	return n, nil
}

func sameOutput(got, want string) bool {
	a, b := outputLines(got), outputLines(want)
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// outputLines are lines without spaces at their ends, and without empty ones at the end of all.
func outputLines(text string) []string {
	lines := strings.Split(strings.TrimRight(text, " \t\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return lines
}
