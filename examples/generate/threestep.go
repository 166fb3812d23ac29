package main

import (
	"math/rand/v2"
	"strings"
)

const (
	threeStepSeed     = 20261124
	demonstrations    = 96 // conversations that a model may learn before it meets a reward
	demonstrationSeed = 7  // other tasks than those of training, of its numbers and stories
)

var threeStepKinds = []kind{
	{
		name: "add_add_add", operator: "+++",
		train: []story{
			"A shop sold {a} {thing} on Monday, {b} on Tuesday, {c} on Friday and {d} on Sunday. How many {thing} did it sell in total?",
			"{name} had {a} {thing}, bought {b} more, found {c} more and then got {d} more. How many {thing} does {name} have now?",
		},
		held: []story{
			"A van brought {a} {thing}, then {b} {thing}, then {c} {thing}, then {d} {thing}. How many {thing} did it bring in total?",
		},
	},
	{
		name: "add_add_sub", operator: "++-",
		train: []story{
			"{name} had {a} {thing}, bought {b} more, found {c} more and then gave away {d}. How many {thing} are left?",
			"There were {a} {thing} in the hall. {b} more were brought in, then another {c}, and then {d} were taken out. How many {thing} are in the hall now?",
		},
		held: []story{
			"A harbour stored {a} {thing}, unloaded {b} more in spring and {c} more in summer, and then shipped {d}. How many {thing} remain?",
		},
	},
	{
		name: "add_sub_add", operator: "+-+",
		train: []story{
			"{name} had {a} {thing}, bought {b} more, lost {c} and then found {d} more. How many {thing} does {name} have now?",
			"A shop had {a} {thing}, received {b} more, sold {c} and then received {d} more. How many {thing} does it have now?",
		},
		held: []story{
			"{name} owned {a} {thing}, got {b} more, broke {c} and then collected {d} more. How many {thing} does {name} own now?",
		},
	},
	{
		name: "sub_add_sub", operator: "-+-",
		train: []story{
			"{name} had {a} {thing}, lost {b}, bought {c} more and then gave away {d}. How many {thing} are left?",
			"There were {a} {thing} in the box. {name} took out {b}, put in {c} and then took out {d}. How many {thing} are in the box now?",
		},
		held: []story{
			"A school had {a} {thing}, threw away {b}, ordered {c} more and then lent {d} to {name}. How many {thing} remain?",
		},
	},
	{
		name: "sub_sub_add", operator: "--+",
		train: []story{
			"{name} had {a} {thing}, gave away {b}, lost {c} and then bought {d} more. How many {thing} does {name} have now?",
			"A shop had {a} {thing}. It sold {b} on Monday and {c} on Tuesday, and received {d} on Friday. How many {thing} does it have now?",
		},
		held: []story{
			"A harbour stored {a} {thing}, shipped {b} in spring and {c} in summer, and unloaded {d} in autumn. How many {thing} does it store now?",
		},
	},
	{
		name: "mul_add_sub", operator: "*+-",
		train: []story{
			"There are {a} boxes with {b} {thing} in each and {c} {thing} on the table. {d} of the {thing} are sold. How many {thing} are left?",
			"{name} has {a} bags of {b} {thing} each, buys {c} more {thing} and gives away {d}. How many {thing} are left?",
		},
		held: []story{
			"There were {a} trucks with {b} {thing} each and {c} more {thing} in a van. {d} of the {thing} were lost. How many {thing} remain?",
		},
	},
}

func threeStepData(seed uint64) (train, held []stepsTask) { return stepsData(seed, threeStepKinds) }

func threeStepWorked() []worked {
	return []worked{
		conversation("Tim had 215 nuts, got 342 more, lost 124 and then found 268 more. How many nuts does he have now?", "701",
			[2]string{"215 + 342", "557"}, [2]string{"557 - 124", "433"}, [2]string{"433 + 268", "701"}),
		conversation("Rosa had 871 keys, sold 136, found 218 more and then lost 305. How many keys are left?", "648",
			[2]string{"871 - 136", "735"}, [2]string{"735 + 218", "953"}, [2]string{"953 - 305", "648"}),
		conversation("There are 124 jars with 318 beans in each and 205 more beans. Eva plants 417 of them. How many beans is that?", "39220",
			[2]string{"124 * 318", "39432"}, [2]string{"39432 + 205", "39637"}, [2]string{"39637 - 417", "39220"}),
	}
}

// stepsSystem is the system prompt of two_step.yaml and three_step.yaml.
const stepsSystem = "Solve the problem by calling the calculator."

// demonstrated are conversations that solve tasks of the training stories and numbers, none of which is a task of training.
func demonstrated(kinds []kind, train []stepsTask, seed uint64) []worked {
	r := rand.New(rand.NewPCG(demonstrationSeed, seed))
	p := newPool(rand.New(rand.NewPCG(seed, 2))) // the pool of training, so that no number of a held-out task is shown
	seen := map[string]bool{}
	for _, t := range train {
		seen[t.Expression] = true
	}
	var out []worked
	for len(out) < demonstrations {
		t := makeSteps(r, kinds, len(out), false, p)
		if seen[t.Expression] {
			continue
		}
		seen[t.Expression] = true
		words, last := strings.Fields(t.Expression), ""
		var steps [][2]string
		for i, result := range t.Steps {
			if last == "" {
				last = words[0]
			}
			steps = append(steps, [2]string{last + " " + words[2*i+1] + " " + words[2*i+2], result})
			last = result
		}
		c := conversation(t.Question, t.Answer, steps...)
		out = append(out, worked{append([]message{{"system", stepsSystem}}, c.Messages...)})
	}
	return out
}
