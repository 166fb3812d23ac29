package main

import (
	"math/rand/v2"
	"strings"
)

// A story is the text of a word problem: {a} and {b} are its numbers in the order in which the expression needs them,
// {name} and {other} two people, {thing} what is counted.
type story string

// A kind is one sort of story with its operator. Training draws from train, the held-out tasks from held; the two
// share no sentence, no name and no thing.
type kind struct {
	name     string
	operator string
	train    []story
	held     []story
}

var kinds = []kind{
	{
		name: "join", operator: "+",
		train: []story{
			"{name} has {a} {thing} and {other} has {b} {thing}. How many {thing} do they have together?",
			"There are {a} {thing} in the first box and {b} {thing} in the second box. How many {thing} are there in total?",
			"{name} counted {a} {thing} in the morning and {b} {thing} in the afternoon. How many {thing} is that in all?",
			"A shop sold {a} {thing} on Monday and {b} {thing} on Tuesday. How many {thing} did it sell altogether?",
			"{name} packed {a} {thing}. {other} packed {b} {thing}. What is the total number of {thing}?",
			"One shelf holds {a} {thing} and another shelf holds {b} {thing}. How many {thing} do both shelves hold together?",
		},
		held: []story{
			"A truck carries {a} {thing} and a van carries {b} {thing}. How many {thing} do they carry altogether?",
			"{name} painted {a} {thing} last year and {b} {thing} this year. How many {thing} did {name} paint in total?",
			"At the fair, {name} saw {a} {thing} and {other} saw {b} {thing}. How many {thing} did they see in all?",
		},
	},
	{
		name: "gain", operator: "+",
		train: []story{
			"{name} had {a} {thing} and bought {b} more. How many {thing} does {name} have now?",
			"There were {a} {thing} in the hall. Then {b} more were brought in. How many {thing} are in the hall now?",
			"{name} had {a} {thing}. {other} gave {name} {b} more {thing}. How many {thing} does {name} have now?",
			"A museum had {a} {thing} and received {b} more. How many {thing} does the museum have now?",
			"{name} found {a} {thing} and then found {b} more. How many {thing} did {name} find in total?",
			"A farm started with {a} {thing} and added {b} more. How many {thing} does it have now?",
		},
		held: []story{
			"A school owned {a} {thing} and ordered {b} more. How many {thing} does the school own now?",
			"{name} collected {a} {thing} and {other} sent {b} more. How many {thing} does {name} have now?",
			"A ship was loaded with {a} {thing}. In the next port, {b} more were loaded. How many {thing} are on the ship now?",
		},
	},
	{
		name: "loss", operator: "-",
		train: []story{
			"{name} had {a} {thing} and gave away {b}. How many {thing} are left?",
			"A shop had {a} {thing} and sold {b} of them. How many {thing} are left?",
			"There were {a} {thing} in the box. {name} took out {b} of them. How many {thing} are left in the box?",
			"{name} had {a} {thing} and lost {b} of them. How many {thing} does {name} still have?",
			"A farm had {a} {thing}. {b} of them were moved away. How many {thing} remain?",
			"{name} made {a} {thing} and {other} used {b} of them. How many {thing} remain?",
		},
		held: []story{
			"A harbour stored {a} {thing} and shipped {b} of them. How many {thing} remain?",
			"{name} owned {a} {thing} but broke {b} of them. How many {thing} are left?",
			"There were {a} {thing} on the field. The wind carried off {b} of them. How many {thing} are left on the field?",
		},
	},
	{
		name: "gap", operator: "-",
		train: []story{
			"{name} has {a} {thing} and {other} has {b} {thing}. How many more {thing} does {name} have than {other}?",
			"The red box holds {a} {thing} and the blue box holds {b} {thing}. How many more {thing} does the red box hold?",
			"{name} counted {a} {thing} and {other} counted {b}. What is the difference?",
			"A big shop has {a} {thing}. A small shop has {b} {thing}. How many fewer {thing} does the small shop have?",
			"{name} needs {a} {thing} and already has {b}. How many more {thing} does {name} need?",
			"On Monday {a} {thing} were sold, on Tuesday only {b}. How many more {thing} were sold on Monday?",
		},
		held: []story{
			"The north tower has {a} {thing} and the south tower has {b} {thing}. How many more {thing} does the north tower have?",
			"{name} wants to plant {a} {thing} and has planted {b}. How many more {thing} must {name} plant?",
			"In spring there were {a} {thing}, in winter only {b}. What is the difference?",
		},
	},
	{
		name: "each", operator: "*",
		train: []story{
			"There are {a} boxes with {b} {thing} in each box. How many {thing} are there in total?",
			"{name} has {a} bags. Each bag holds {b} {thing}. How many {thing} does {name} have?",
			"A hall has {a} rows of {b} {thing} each. How many {thing} are in the hall?",
			"{name} buys {a} packs with {b} {thing} in each pack. How many {thing} is that?",
			"Each of {a} shops has {b} {thing}. How many {thing} do the shops have in total?",
			"{a} children each bring {b} {thing}. How many {thing} do they bring in all?",
		},
		held: []story{
			"There are {a} trucks and each truck carries {b} {thing}. How many {thing} do the trucks carry in total?",
			"{name} fills {a} crates with {b} {thing} each. How many {thing} is that in all?",
			"Each of {a} villages has {b} {thing}. How many {thing} do the villages have altogether?",
		},
	},
	{
		name: "rate", operator: "*",
		train: []story{
			"A machine makes {a} {thing} every hour. How many {thing} does it make in {b} hours?",
			"{name} sells {a} {thing} every day. How many {thing} does {name} sell in {b} days?",
			"A factory packs {a} {thing} per day. How many {thing} does it pack in {b} days?",
			"A shop needs {a} {thing} each month. How many {thing} does it need in {b} months?",
			"A train carries {a} {thing} on every trip. How many {thing} does it carry on {b} trips?",
			"{name} uses {a} {thing} each week. How many {thing} does {name} use in {b} weeks?",
		},
		held: []story{
			"A printer prints {a} {thing} every minute. How many {thing} does it print in {b} minutes?",
			"{name} sorts {a} {thing} per shift. How many {thing} does {name} sort in {b} shifts?",
			"A hotel uses {a} {thing} each season. How many {thing} does it use in {b} seasons?",
		},
	},
}

// cast is who and what stories are about.
type cast struct{ names, things []string }

var trainCast = cast{
	names:  []string{"Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Julia", "Leo", "Mary", "Peter"},
	things: []string{"apples", "books", "coins", "stamps", "chairs", "pens", "eggs", "cards", "bottles", "balls", "tickets", "shells"},
}

var heldCast = cast{
	names:  []string{"Olga", "Victor", "Nina", "Samuel", "Lucy", "Oscar"},
	things: []string{"lamps", "cups", "flags", "lemons", "boards", "candles"},
}

// tell fills in a story. Only the placeholders that it has draw from r, in the order of their first use.
func tell(r *rand.Rand, s story, c cast, numbers ...string) string {
	text := string(s)
	if strings.Contains(text, "{name}") || strings.Contains(text, "{other}") {
		i := r.IntN(len(c.names))
		j := (i + 1 + r.IntN(len(c.names)-1)) % len(c.names)
		text = strings.NewReplacer("{name}", c.names[i], "{other}", c.names[j]).Replace(text)
	}
	text = strings.ReplaceAll(text, "{thing}", c.things[r.IntN(len(c.things))])
	for i, n := range numbers {
		text = strings.ReplaceAll(text, "{"+string(rune('a'+i))+"}", n)
	}
	return text
}
