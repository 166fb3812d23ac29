package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodeTasks(t *testing.T) {
	train, held := codeData(codeSeed)
	require.Len(t, train, 480)
	require.Len(t, held, 120)
	wordings := map[string]int{}
	for _, c := range held {
		wordings[c.Kind+" "+c.Wording]++
	}
	require.Len(t, wordings, 12)
	for what, n := range wordings {
		require.Equal(t, 10, n, what)
	}
	other, _ := codeData(codeSeed + 1)
	require.NotEqual(t, train, other)
	for _, tasks := range [][]codeTask{train, held} {
		for i := range len(tasks) - 5 {
			seen := map[string]bool{}
			for _, c := range tasks[i : i+6] {
				seen[c.Kind] = true
			}
			require.Len(t, seen, 6, "any six tasks in a row hold one of each kind")
		}
		for _, c := range tasks {
			require.NotRegexp(t, `[{}]`, c.Question)
			require.NotContains(t, c.Code, "\n")
			if c.Kind != "largest" { // whose answer is one of many numbers
				require.NotContains(t, regexp.MustCompile(`\w+`).FindAllString(c.Question, -1), c.Answer, c.Question)
			}
		}
	}
}

// Every line of code prints its answer, in a real Python.
func TestCodeAnswers(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing (apt-get install python3)")
	}
	train, held := codeData(codeSeed)
	var program strings.Builder
	var want []string
	for _, c := range slices.Concat(train, held) {
		program.WriteString(c.Code + "\n")
		want = append(want, c.Answer)
	}
	for _, w := range codeWorked() {
		program.WriteString(strings.TrimSuffix(strings.TrimPrefix(w.Messages[1].Content, "<python>"), "</python>") + "\n")
		want = append(want, strings.TrimSuffix(strings.TrimPrefix(w.Messages[2].Content, "<result>"), "</result>"))
		require.Equal(t, "<answer>"+want[len(want)-1]+"</answer>", w.Messages[3].Content)
	}
	run := exec.CommandContext(t.Context(), python, "-I", "-")
	run.Stdin = strings.NewReader(program.String())
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Run(), out.String())
	require.Equal(t, want, strings.Split(strings.TrimSpace(out.String()), "\n"))
}

// Held-out tasks share no word, no number and no line of code with the training tasks or the worked examples, and one half no wording either.
func TestCodeHeldOut(t *testing.T) {
	quoted, number := regexp.MustCompile(`"([a-z]+)"`), regexp.MustCompile(`\d+`)
	wording := func(c codeTask) string {
		text := number.ReplaceAllString(quoted.ReplaceAllString(c.Question, "W"), "N")
		return regexp.MustCompile(`\b[a-z]('s)?\b|N(, N)* and N|N(, N)+`).ReplaceAllString(text, "L")
	}
	train, held := codeData(codeSeed)
	seen := map[string]bool{}
	note := func(texts ...string) {
		for _, s := range texts {
			seen[s] = true
		}
	}
	for _, c := range train {
		require.False(t, seen[c.Code] || seen[c.Question], "twice: %s", c.Question)
		note(c.Code, c.Question, wording(c))
		if c.Kind != "remainder" { // whose numbers are made of two
			note(number.FindAllString(c.Question, -1)...)
		}
		for _, w := range quoted.FindAllStringSubmatch(c.Question, -1) {
			note(w[1])
		}
	}
	for _, w := range codeWorked() {
		note(w.Messages[0].Content, strings.TrimSuffix(strings.TrimPrefix(w.Messages[1].Content, "<python>"), "</python>"))
	}
	for _, c := range held {
		require.False(t, seen[c.Code] || seen[c.Question], "%s", c.Question)
		require.Equal(t, c.Wording == "trained", seen[wording(c)], "%s", c.Question)
		note(c.Code, c.Question)
		if c.Kind != "remainder" {
			for _, n := range number.FindAllString(c.Question, -1) {
				require.False(t, seen[n], "the number %s of %q occurs in training", n, c.Question)
			}
		}
		for _, w := range quoted.FindAllStringSubmatch(c.Question, -1) {
			require.False(t, seen[w[1]], "the word %q of %q occurs in training", w[1], c.Question)
		}
	}
}
