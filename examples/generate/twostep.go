package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// stepsTask is one line of the two-step and of the three-step data: calls of which each takes the result of the one before.
type stepsTask struct {
	ID         string   `json:"id"`
	Question   string   `json:"question"`
	Answer     string   `json:"answer"`
	Kind       string   `json:"kind"`
	Operator   string   `json:"operator"`
	Expression string   `json:"expression"`
	Steps      []string `json:"steps"` // results of the calls
}

// The sizes of the two-step and the three-step data.
const (
	twoStepSeed = 20250716
	stepsTrain  = 480
	stepsHeld   = 100
)

var twoStepKinds = []kind{
	{
		name: "add_add", operator: "++",
		train: []story{
			"{name} had {a} {thing}, bought {b} more and then found {c} more. How many {thing} does {name} have now?",
			"A shop sold {a} {thing} on Monday, {b} on Tuesday and {c} on Friday. How many {thing} did it sell in total?",
			"Three boxes hold {a}, {b} and {c} {thing}. How many {thing} do they hold together?",
			"{name} has {a} {thing}, {other} has {b} {thing} and Tom has {c} {thing}. How many {thing} do they have in all?",
		},
		held: []story{
			"A van brought {a} {thing}, then {b} {thing}, then {c} {thing}. How many {thing} did it bring in total?",
			"{name} painted {a} {thing} in May, {b} in June and {c} in July. How many {thing} is that in all?",
		},
	},
	{
		name: "add_sub", operator: "+-",
		train: []story{
			"{name} had {a} {thing}, bought {b} more and then gave away {c}. How many {thing} are left?",
			"A shop had {a} {thing}, received {b} more and then sold {c}. How many {thing} are left?",
			"There were {a} {thing} in the hall. {b} more were brought in, then {c} were taken out. How many {thing} are in the hall now?",
			"{name} has {a} {thing} and {other} has {b}. Together they lose {c} of them. How many {thing} do they still have?",
		},
		held: []story{
			"A harbour stored {a} {thing}, unloaded {b} more and then shipped {c}. How many {thing} remain?",
			"{name} owned {a} {thing}, got {b} more and then broke {c}. How many {thing} are left?",
		},
	},
	{
		name: "sub_add", operator: "-+",
		train: []story{
			"{name} had {a} {thing}, lost {b} and then bought {c} more. How many {thing} does {name} have now?",
			"A shop had {a} {thing}, sold {b} and then received {c} more. How many {thing} does it have now?",
			"There were {a} {thing} in the box. {name} took out {b}, then put in {c}. How many {thing} are in the box now?",
			"{name} had {a} {thing}. {name} gave {b} to {other} and then found {c} more. How many {thing} does {name} have now?",
		},
		held: []story{
			"A school had {a} {thing}, threw away {b} and then ordered {c} more. How many {thing} does it have now?",
			"{name} owned {a} {thing}, sold {b} and then collected {c} more. How many {thing} does {name} own now?",
		},
	},
	{
		name: "sub_sub", operator: "--",
		train: []story{
			"{name} had {a} {thing}, gave away {b} and then lost {c}. How many {thing} are left?",
			"A shop had {a} {thing}. It sold {b} on Monday and {c} on Tuesday. How many {thing} are left?",
			"There were {a} {thing} in the box. {name} took out {b} and {other} took out {c}. How many {thing} are left in the box?",
			"A farm had {a} {thing}. {b} of them were sold and {c} were eaten. How many {thing} remain?",
		},
		held: []story{
			"A harbour stored {a} {thing}. It shipped {b} in spring and {c} in summer. How many {thing} remain?",
			"{name} owned {a} {thing}, broke {b} and then sold {c}. How many {thing} are left?",
		},
	},
	{
		name: "mul_add", operator: "*+",
		train: []story{
			"There are {a} boxes with {b} {thing} in each and {c} {thing} on the table. How many {thing} are there in total?",
			"{name} has {a} bags of {b} {thing} each and buys {c} more {thing}. How many {thing} does {name} have now?",
			"A hall has {a} rows of {b} {thing} and {c} more {thing} at the wall. How many {thing} are in the hall?",
			"A shop sells {a} {thing} a day for {b} days and then {c} more. How many {thing} does it sell in all?",
		},
		held: []story{
			"There are {a} trucks with {b} {thing} each and {c} more {thing} in a van. How many {thing} is that in total?",
			"{name} fills {a} crates with {b} {thing} each and has {c} {thing} over. How many {thing} does {name} have in all?",
		},
	},
	{
		name: "mul_sub", operator: "*-",
		train: []story{
			"There are {a} boxes with {b} {thing} in each. {c} of the {thing} are sold. How many {thing} are left?",
			"{name} has {a} bags of {b} {thing} each and gives away {c} {thing}. How many {thing} are left?",
			"A hall had {a} rows of {b} {thing}. {c} {thing} were taken out. How many {thing} remain?",
			"A machine makes {a} {thing} an hour for {b} hours, but {c} of them are broken. How many {thing} remain?",
		},
		held: []story{
			"There were {a} trucks with {b} {thing} each. {c} of the {thing} were lost. How many {thing} remain?",
			"{name} filled {a} crates with {b} {thing} each and then sold {c} {thing}. How many {thing} are left?",
		},
	},
}

// stepNumbers draws numbers for which no result is negative, one more than there are operators.
func stepNumbers(r *rand.Rand, operators string, numbers []int) []int {
	for {
		n := make([]int, len(operators)+1)
		for i := range n {
			n[i] = numbers[r.IntN(len(numbers))]
		}
		fits, result := true, n[0]
		for i, operator := range operators {
			result = apply(string(operator), result, n[i+1])
			fits = fits && n[i] != n[i+1] && result > 0
		}
		if fits {
			return n
		}
	}
}

func makeSteps(r *rand.Rand, kinds []kind, i int, held bool, p pool) stepsTask {
	k := kinds[i%len(kinds)]
	stories, numbers, c, prefix := k.train, p.train, trainCast, "train"
	if held {
		stories, numbers, c, prefix = k.held, p.held, heldCast, "eval"
	}
	n := stepNumbers(r, k.operator, numbers)
	words, expression, result := []string{strconv.Itoa(n[0])}, strconv.Itoa(n[0]), n[0]
	var steps []string
	for j, operator := range k.operator {
		next := strconv.Itoa(n[j+1])
		result = apply(string(operator), result, n[j+1])
		words, steps = append(words, next), append(steps, strconv.Itoa(result))
		expression += " " + string(operator) + " " + next
	}
	return stepsTask{
		ID:         fmt.Sprintf("%s-%03d", prefix, i),
		Question:   tell(r, stories[r.IntN(len(stories))], c, words...),
		Answer:     steps[len(steps)-1],
		Kind:       k.name,
		Operator:   k.operator,
		Expression: expression,
		Steps:      steps,
	}
}

// stepsData returns the training and the held-out tasks; no question and no expression occurs twice.
func stepsData(seed uint64, kinds []kind) (train, held []stepsTask) {
	r := rand.New(rand.NewPCG(seed, 2))
	p := newPool(r)
	seen := map[string]bool{}
	draw := func(i int, fromHeld bool) stepsTask {
		for {
			t := makeSteps(r, kinds, i, fromHeld, p)
			if !seen[t.Question] && !seen[t.Expression] {
				seen[t.Question], seen[t.Expression] = true, true
				return t
			}
		}
	}
	for i := range stepsTrain {
		train = append(train, draw(i, false))
	}
	for i := range stepsHeld {
		held = append(held, draw(i, true))
	}
	return train, held
}

func twoStepData(seed uint64) (train, held []stepsTask) { return stepsData(seed, twoStepKinds) }

func twoStepWorked() []worked {
	return []worked{
		conversation("Tim had 215 nuts, got 342 more and then lost 124. How many nuts are left?", "433",
			[2]string{"215 + 342", "557"}, [2]string{"557 - 124", "433"}),
		conversation("Rosa had 871 keys, sold 136 and then found 218 more. How many keys does she have now?", "953",
			[2]string{"871 - 136", "735"}, [2]string{"735 + 218", "953"}),
		conversation("There are 124 jars with 318 beans in each and 205 more beans. How many beans is that?", "39637",
			[2]string{"124 * 318", "39432"}, [2]string{"39432 + 205", "39637"}),
	}
}
