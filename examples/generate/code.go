package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// codeTask is one line of the code interpreter's data.
type codeTask struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	Answer   string `json:"answer"`
	Kind     string `json:"kind"`
	Wording  string `json:"wording"` // trained, or new: one that no training task has
	Code     string `json:"code"`    // a line of Python that prints the answer
}

// The sizes of the code interpreter's data.
const (
	codeSeed  = 20251121
	codeTrain = 480
	codeHeld  = 120
)

// codeKind is one sort of task. A question has {w}, a word, {l}, a letter, or {n}, numbers. Training draws from train; of the held-out
// tasks, whose words and numbers no training task has, one half does too, the other draws from held.
type codeKind struct {
	name  string
	train []string
	held  []string
	draw  func(r *rand.Rand, p codePool) (values map[string]string, answer, code string)
}

// codePool are the words and numbers of one side.
type codePool struct {
	words   []string
	numbers []int // 11 to 999
}

func (p codePool) word(r *rand.Rand) string { return p.words[r.IntN(len(p.words))] }

func (p codePool) some(r *rand.Rand, n int) []int {
	out := make([]int, n)
	for i, k := range r.Perm(len(p.numbers))[:n] {
		out[i] = p.numbers[k]
	}
	return out
}

func list(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

var codeKinds = []codeKind{
	{
		"count",
		[]string{
			`How many times does the letter {l} occur in "{w}"?`, `Count the letter {l} in the word "{w}".`,
			`How often is there the letter {l} in "{w}"?`,
		},
		[]string{`How many {l}'s are in "{w}"?`, `The word "{w}": how many times is {l} in it?`},
		func(r *rand.Rand, p codePool) (map[string]string, string, string) {
			w := p.word(r)
			l := w[r.IntN(len(w)):][:1]
			return map[string]string{"w": w, "l": l}, strconv.Itoa(strings.Count(w, l)), fmt.Sprintf(`print("%s".count("%s"))`, w, l)
		},
	},
	{
		"reverse",
		[]string{`Write the word "{w}" backwards.`, `What is "{w}" in reverse?`, `Reverse the letters of "{w}".`},
		[]string{`Spell "{w}" from its last letter to its first.`, `What does "{w}" read from right to left?`},
		func(r *rand.Rand, p codePool) (map[string]string, string, string) {
			w := p.word(r)
			letters := []byte(w)
			slices.Reverse(letters)
			return map[string]string{"w": w}, string(letters), fmt.Sprintf(`print("%s"[::-1])`, w)
		},
	},
	{
		"length",
		[]string{`How many letters does the word "{w}" have?`, `What is the length of "{w}"?`, `Count the letters of "{w}".`},
		[]string{`How long is the word "{w}"?`, `"{w}" is a word of how many letters?`},
		func(r *rand.Rand, p codePool) (map[string]string, string, string) {
			w := p.word(r)
			if r.IntN(2) == 0 {
				w += p.word(r) // two words in one: a length that is not in the model's memory
			}
			return map[string]string{"w": w}, strconv.Itoa(len(w)), fmt.Sprintf(`print(len("%s"))`, w)
		},
	},
	{
		"sum",
		[]string{`What is the sum of {n}?`, `Add up the numbers {n}.`, `A list holds {n}. What do its numbers add up to?`},
		[]string{`Find the total of {n}.`, `The days' sales were {n}. How much is that together?`},
		func(r *rand.Rand, p codePool) (map[string]string, string, string) {
			n := p.some(r, 3+r.IntN(2))
			sum := 0
			for _, v := range n {
				sum += v
			}
			return map[string]string{"n": list(n)}, strconv.Itoa(sum), fmt.Sprintf("print(sum([%s]))", list(n))
		},
	},
	{
		"largest",
		[]string{`What is the largest of {n}?`, `Which of the numbers {n} is the largest?`, `Find the largest number in {n}.`},
		[]string{`The readings were {n}. What was the highest?`, `Name the biggest of {n}.`},
		func(r *rand.Rand, p codePool) (map[string]string, string, string) {
			n := p.some(r, 4+r.IntN(3))
			return map[string]string{"n": list(n)}, strconv.Itoa(slices.Max(n)), fmt.Sprintf("print(max([%s]))", list(n))
		},
	},
	{
		"remainder",
		[]string{
			`What is the remainder when {a} is divided by {b}?`, `Divide {a} by {b}. What remains?`, `{a} modulo {b} is what?`,
		},
		[]string{`{a} apples are packed in boxes of {b}. How many are left over?`, `What is left when {a} is divided by {b}?`},
		func(r *rand.Rand, p codePool) (map[string]string, string, string) {
			n := p.some(r, 2)
			a, b := n[0]*37+n[1], 11+n[1]%80
			return map[string]string{"a": strconv.Itoa(a), "b": strconv.Itoa(b)}, strconv.Itoa(a % b), fmt.Sprintf("print(%d %% %d)", a, b)
		},
	},
}

// codeData returns the training and the held-out tasks; no question and no line of code occurs twice.
func codeData(seed uint64) (train, held []codeTask) {
	r := rand.New(rand.NewPCG(seed, 3))
	all := slices.Clone(codeWords)
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	numbers := r.Perm(989)
	for i := range numbers {
		numbers[i] += 11
	}
	seen := map[string]bool{}
	draw := func(i int, prefix string, p codePool, wording string) codeTask {
		k := codeKinds[i%len(codeKinds)]
		texts := k.train
		if wording == "new" {
			texts = k.held
		}
		for {
			values, answer, code := k.draw(r, p)
			question := texts[r.IntN(len(texts))]
			for name, v := range values {
				question = strings.ReplaceAll(question, "{"+name+"}", v)
			}
			if !seen[question] && !seen[code] {
				seen[question], seen[code] = true, true
				return codeTask{fmt.Sprintf("%s-%03d", prefix, i), question, answer, k.name, wording, code}
			}
		}
	}
	fifth := len(all) / 5
	for i := range codeTrain {
		train = append(train, draw(i, "train", codePool{all[fifth:], numbers[200:]}, "trained"))
	}
	for i := range codeHeld {
		wording := []string{"trained", "new"}[i/len(codeKinds)%2]
		held = append(held, draw(i, "eval", codePool{all[:fifth], numbers[:200]}, wording))
	}
	return train, held
}

// codeWorked shows four of the six kinds; the others a model must find itself.
func codeWorked() []worked {
	conversation := func(question, code, answer string) worked {
		return worked{[]message{
			{"user", question},
			{"assistant", "<python>" + code + "</python>"},
			{"user", "<result>" + answer + "</result>"},
			{"assistant", "<answer>" + answer + "</answer>"},
		}}
	}
	return []worked{
		conversation(`What is the sum of 9, 5, 3 and 7?`, `print(sum([9, 5, 3, 7]))`, "24"),
		conversation(`What remains when 47 is divided by 6?`, `print(47 % 6)`, "5"),
		conversation(`Write the word "pond" backwards.`, `print("pond"[::-1])`, "dnop"),
		conversation(`Count the letter e in the word "tree".`, `print("tree".count("e"))`, "2"),
	}
}
