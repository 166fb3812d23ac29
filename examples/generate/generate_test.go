package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/tools/calculator"
)

// The committed data are what the generator writes.
func TestCommittedData(t *testing.T) {
	all, err := files()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for path, want := range all {
		got, err := os.ReadFile(filepath.Join("..", path))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "examples/%s differs; run go run ./examples/generate", path)
	}
}

func TestOtherSeedOtherData(t *testing.T) {
	a, _ := calculatorData(1)
	b, _ := calculatorData(2)
	require.NotEqual(t, a, b)
}

// row is what the calculator, the two-step and the three-step data have in common.
type row struct {
	question, answer, kind, expression string
	steps                              []string
}

func datasets() map[string][2][]row {
	train, held := calculatorData(calculatorSeed)
	twoTrain, twoHeld := twoStepData(twoStepSeed)
	threeTrain, threeHeld := threeStepData(threeStepSeed)
	plain := func(in []task) (out []row) {
		for _, t := range in {
			out = append(out, row{t.Question, t.Answer, t.Kind, t.Expression, []string{t.Answer}})
		}
		return out
	}
	several := func(in []stepsTask) (out []row) {
		for _, t := range in {
			out = append(out, row{t.Question, t.Answer, t.Kind, t.Expression, t.Steps})
		}
		return out
	}
	return map[string][2][]row{"calculator": {plain(train), plain(held)}, "two_step": {several(twoTrain), several(twoHeld)}, "three_step": {several(threeTrain), several(threeHeld)}}
}

var digits = regexp.MustCompile(`\d+`)

func TestTasks(t *testing.T) {
	for name, d := range datasets() {
		t.Run(name, func(t *testing.T) {
			require.Len(t, d[0], 480)
			require.Len(t, d[1], 100)
			for _, rows := range d {
				for _, r := range rows {
					got, err := calculator.Evaluate(t.Context(), r.expression)
					require.NoError(t, err)
					require.Equal(t, r.answer, got, r.expression)
					require.Equal(t, r.answer, r.steps[len(r.steps)-1])
					require.NotContains(t, r.answer, "-", "no result is negative")
					numbers := digits.FindAllString(r.question, -1)
					require.Equal(t, digits.FindAllString(r.expression, -1), numbers, "the expression has the numbers of the story, in its order")
					for _, n := range numbers {
						v, err := strconv.Atoi(n)
						require.NoError(t, err)
						require.True(t, v >= 100 && v <= 999, "%q has three digits", n)
					}
					require.NotContains(t, r.question, "{")
				}
			}
		})
	}
}

// Any six tasks in a row hold one of each kind, so that a step of six groups is balanced.
func TestBalance(t *testing.T) {
	for name, d := range datasets() {
		t.Run(name, func(t *testing.T) {
			for _, rows := range d {
				for i := range len(rows) - 5 {
					seen := map[string]bool{}
					for _, r := range rows[i : i+6] {
						seen[r.kind] = true
					}
					require.Len(t, seen, 6)
				}
			}
		})
	}
}

// A story's name says which text a task has: equal names are one text, and others another one. No name of a held-out story
// occurs in training.
func TestStoriesHaveNames(t *testing.T) {
	train, held := calculatorData(calculatorSeed)
	for i, c := range []cast{trainCast, heldCast} {
		words := regexp.MustCompile(`\b(` + strings.Join(append(append([]string{}, c.names...), c.things...), "|") + `)\b`)
		texts, names := map[string]string{}, map[string]string{}
		for _, task := range [][]task{train, held}[i] {
			text := digits.ReplaceAllString(words.ReplaceAllString(task.Question, "@"), "#")
			require.True(t, strings.HasPrefix(task.Story, task.Kind+"-"), task.Story)
			require.Equal(t, i == 1, strings.Contains(task.Story, "held"), task.Story)
			if texts[task.Story] == "" && names[text] == "" {
				texts[task.Story], names[text] = text, task.Story
			}
			require.Equal(t, text, texts[task.Story])
			require.Equal(t, task.Story, names[text])
		}
		require.Len(t, texts, []int{36, 18}[i])
	}
}

// Held-out tasks share no number, no story and no thing or name with the training tasks, and no story with the worked examples.
func TestHeldOut(t *testing.T) {
	for name, d := range datasets() {
		t.Run(name, func(t *testing.T) {
			skeleton := func(question string) string { return digits.ReplaceAllString(question, "#") }
			words := regexp.MustCompile(`\b(` + strings.Join(append(append([]string{}, trainCast.names...), trainCast.things...), "|") + `)\b`)
			numbers, stories, questions := map[string]bool{}, map[string]bool{}, map[string]bool{}
			for _, r := range d[0] {
				for _, n := range digits.FindAllString(r.question, -1) {
					numbers[n] = true
				}
				stories[skeleton(words.ReplaceAllString(r.question, "@"))] = true
				require.False(t, questions[r.question], "twice: %s", r.question)
				questions[r.question] = true
			}
			for _, r := range d[1] {
				for _, n := range digits.FindAllString(r.question, -1) {
					require.False(t, numbers[n], "the number %s of %q occurs in training", n, r.question)
				}
				require.False(t, words.MatchString(r.question), r.question)
				held := regexp.MustCompile(`\b(` + strings.Join(append(append([]string{}, heldCast.names...), heldCast.things...), "|") + `)\b`)
				require.False(t, stories[skeleton(held.ReplaceAllString(r.question, "@"))], r.question)
				require.False(t, questions[r.question], "twice: %s", r.question)
				questions[r.question] = true
			}
			held := regexp.MustCompile(`\b(` + strings.Join(append(append([]string{}, heldCast.names...), heldCast.things...), "|") + `)\b`)
			shown := map[string]bool{}
			for _, e := range shipped[name] {
				shown[skeleton(workedCast.ReplaceAllString(e.Messages[0].Content, "@"))] = true
			}
			require.Len(t, shown, len(shipped[name]))
			for _, r := range d[1] {
				require.False(t, shown[skeleton(held.ReplaceAllString(r.question, "@"))], "a worked example tells the story of %q", r.question)
			}
		})
	}
}

// shipped are the worked examples of the jobs that have stories.
var shipped = map[string][]worked{"calculator": calculatorWorked(), "two_step": twoStepWorked(), "three_step": threeStepWorked()}

// workedCast are the names and things of the worked examples.
var workedCast = regexp.MustCompile(`\b(Tim|Eva|Rosa|Max|nuts|keys|jars|beans|coats|singers|sacks)\b`)

// The worked examples are right, short and none of the tasks.
func TestWorked(t *testing.T) {
	length := map[string]int{"calculator": 6, "two_step": 3, "three_step": 3}
	for name, examples := range shipped {
		require.Len(t, examples, length[name])
		operators := map[string]bool{}
		for _, e := range examples {
			for i, m := range e.Messages {
				call, isCall := strings.CutPrefix(m.Content, "<calculator>")
				if !isCall {
					continue
				}
				call = strings.TrimSuffix(call, "</calculator>")
				operators[strings.Fields(call)[1]] = true
				want, err := calculator.Evaluate(t.Context(), call)
				require.NoError(t, err)
				require.Equal(t, "<result>"+want+"</result>", e.Messages[i+1].Content)
				if i+3 == len(e.Messages) {
					require.Equal(t, "<answer>"+want+"</answer>", e.Messages[i+2].Content)
				}
			}
			for _, d := range datasets() {
				for _, rows := range d {
					for _, r := range rows {
						require.NotEqual(t, r.question, e.Messages[0].Content)
					}
				}
			}
		}
		require.Len(t, operators, 3, name)
	}
}

// Every text that the tiny job needs is one token of the tiny model, and every sum of its vocabulary is a task.
func TestTiny(t *testing.T) {
	tok, err := tokenizer.Load(filepath.Join("..", "tiny", "model"))
	require.NoError(t, err)
	one := func(text string) {
		ids := tok.Encode(text)
		require.Len(t, ids, 1, text)
		require.Equal(t, text, tok.Decode(ids, false))
	}
	tasks := tinyData()
	require.Len(t, tasks, 4)
	for _, task := range tasks {
		got, err := calculator.Evaluate(t.Context(), task.Question)
		require.NoError(t, err)
		require.Equal(t, got, task.Answer)
		require.Equal(t, []string{got}, task.Steps)
		one(task.Question)
		one(task.Answer)
		one("<calculator>" + task.Question + "</calculator>")
		one("<answer>" + task.Answer + "</answer>")
	}
	require.Equal(t, 22, tok.Size())
}

// Every text that the jobs agents_KIND.yaml need is one token of their model.
func TestAgents(t *testing.T) {
	texts := map[string][]string{
		"react":     {"1+1", "Thought: I compute.\nAction: calculator\nAction Input: 1+1", "Thought: I know.\nFinal Answer: 2", "Observation: ", "5"},
		"code":      {"2+3", "```python\nprint(2+3)\n```", "<answer>5</answer>", "```output\n", "\n```"},
		"search_r1": {"fingers of a hand", "<search>fingers of a hand</search>", "<answer>5</answer>", "<information>", "</information>"},
		"action":    {"red door", "<action>take the red door key</action>", "<action>open the red door</action>", "open", "nothing", "2"},
		"custom":    {"1+2", "compute 1+2", "say 3", "saw ", "wrong"},
	}
	for kind, words := range texts {
		tok, err := tokenizer.Load(filepath.Join("..", "agents", kind, "model"))
		require.NoError(t, err)
		require.Equal(t, 22, tok.Size())
		for _, text := range words {
			ids := tok.Encode(text)
			require.Len(t, ids, 1, "%s: %q", kind, text)
			require.Equal(t, text, tok.Decode(ids, false))
		}
	}
	for _, task := range agentsThings() {
		require.Equal(t, []string{task.Answer}, task.Steps)
	}
}

// Demonstrations are conversations that call for each step and answer with the last result; they tell no task of training, and no number of a
// held-out one.
func TestDemonstrations(t *testing.T) {
	data := datasets()
	twoTrain, _ := twoStepData(twoStepSeed)
	threeTrain, _ := threeStepData(threeStepSeed)
	for name, shown := range map[string][]worked{
		"two_step":   demonstrated(twoStepKinds, twoTrain, twoStepSeed),
		"three_step": demonstrated(threeStepKinds, threeTrain, threeStepSeed),
	} {
		require.Len(t, shown, demonstrations)
		questions, held := map[string]bool{}, map[string]bool{}
		for i, rows := range data[name] {
			for _, r := range rows {
				questions[r.question] = true
				for _, n := range digits.FindAllString(r.question, -1) {
					held[n] = held[n] || i == 1
				}
			}
		}
		for _, c := range shown {
			m := c.Messages
			require.Equal(t, message{"system", stepsSystem}, m[0])
			require.False(t, questions[m[1].Content], m[1].Content)
			for _, n := range digits.FindAllString(m[1].Content, -1) {
				require.False(t, held[n], "the number %s of %q is one of a held-out task", n, m[1].Content)
			}
			result := ""
			for i := 2; i < len(m)-1; i += 2 {
				call := strings.TrimSuffix(strings.TrimPrefix(m[i].Content, "<calculator>"), "</calculator>")
				require.True(t, strings.HasPrefix(call, result), call)
				var err error
				result, err = calculator.Evaluate(t.Context(), call)
				require.NoError(t, err)
				require.Equal(t, "<result>"+result+"</result>", m[i+1].Content)
			}
			require.Equal(t, "<answer>"+result+"</answer>", m[len(m)-1].Content)
		}
	}
}
