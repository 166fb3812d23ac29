package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// task is one line of the calculator's data.
type task struct {
	ID         string `json:"id"`
	Question   string `json:"question"`
	Answer     string `json:"answer"`
	Kind       string `json:"kind"`
	Story      string `json:"story"` // its place among the stories of the kind, such as gap-5; held-out ones are gap-held-1
	Operator   string `json:"operator"`
	Expression string `json:"expression"`
}

// The sizes of the calculator's data.
const (
	calculatorSeed  = 20250714
	calculatorTrain = 480
	calculatorHeld  = 100
)

// pool splits the numbers from 100 to 999: one in five occurs in held-out tasks only.
type pool struct{ train, held []int }

func newPool(r *rand.Rand) pool {
	numbers := r.Perm(900)
	for i := range numbers {
		numbers[i] += 100
	}
	return pool{train: numbers[180:], held: numbers[:180]}
}

// apply computes a op b for the three operators of the stories.
func apply(op string, a, b int) int {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	default:
		return a * b
	}
}

// calculatorTask writes task i: kinds take turns, so that any six tasks in a row hold one of each.
func calculatorTask(r *rand.Rand, i int, held bool, p pool) task {
	k := kinds[i%len(kinds)]
	stories, numbers, c, prefix := k.train, p.train, trainCast, "train"
	if held {
		stories, numbers, c, prefix = k.held, p.held, heldCast, "eval"
	}
	a, b := numbers[r.IntN(len(numbers))], numbers[r.IntN(len(numbers))]
	for a == b {
		b = numbers[r.IntN(len(numbers))]
	}
	if k.operator == "-" && a < b {
		a, b = b, a
	}
	told := r.IntN(len(stories))
	text := tell(r, stories[told], c, strconv.Itoa(a), strconv.Itoa(b))
	return task{
		ID:         fmt.Sprintf("%s-%03d", prefix, i),
		Question:   text,
		Answer:     strconv.Itoa(apply(k.operator, a, b)),
		Kind:       k.name,
		Story:      storyName(k.name, held, told),
		Operator:   k.operator,
		Expression: fmt.Sprintf("%d %s %d", a, k.operator, b),
	}
}

// storyName names a story by its place, from 1; held-out stories have names of their own.
func storyName(kind string, held bool, place int) string {
	if held {
		kind += "-held"
	}
	return fmt.Sprintf("%s-%d", kind, place+1)
}

// calculatorData returns the training and the held-out tasks; no question and no expression occurs twice.
func calculatorData(seed uint64) (train, held []task) {
	r := rand.New(rand.NewPCG(seed, 1))
	p := newPool(r)
	seen := map[string]bool{}
	draw := func(i int, fromHeld bool) task {
		for {
			t := calculatorTask(r, i, fromHeld, p)
			if !seen[t.Question] && !seen[t.Expression] {
				seen[t.Question], seen[t.Expression] = true, true
				return t
			}
		}
	}
	for i := range calculatorTrain {
		train = append(train, draw(i, false))
	}
	for i := range calculatorHeld {
		held = append(held, draw(i, true))
	}
	return train, held
}

// worked is one line of worked.jsonl: a conversation that precedes the question of every task.
type worked struct {
	Messages []message `json:"messages"`
}

// message is OpenAI's form, without the escapes that trajectory.Message would write for < and >.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// conversation writes a worked example: the question, then calls with their results, then the answer.
func conversation(question, answer string, steps ...[2]string) worked {
	m := []message{{"user", question}}
	for _, s := range steps {
		m = append(m, message{"assistant", "<calculator>" + s[0] + "</calculator>"}, message{"user", "<result>" + s[1] + "</result>"})
	}
	return worked{append(m, message{"assistant", "<answer>" + answer + "</answer>"})}
}

// calculatorWorked shows each kind of story once. With the first three alone SmolLM2 solves a third of the held-out tasks before it is
// trained and reads some stories of the other kinds by chance after it (docs/results/calculator.md). The order matters: a small model
// copies the last operator most.
func calculatorWorked() []worked {
	return []worked{
		conversation("Tim has 215 nuts and Eva has 342 nuts. How many nuts is that in all?", "557", [2]string{"215 + 342", "557"}),
		conversation("Rosa had 871 keys and lost 136. How many keys are left?", "735", [2]string{"871 - 136", "735"}),
		conversation("There are 124 jars with 318 beans in each. How many beans is that?", "39432", [2]string{"124 * 318", "39432"}),
		conversation("Max has 649 coats and Rosa has 427 coats. How many more coats does Max have?", "222", [2]string{"649 - 427", "222"}),
		conversation("A choir had 154 singers and 238 more joined. How many singers are there now?", "392", [2]string{"154 + 238", "392"}),
		conversation("A mill grinds 213 sacks each day. How many sacks does it grind in 132 days?", "28116", [2]string{"213 * 132", "28116"}),
	}
}
