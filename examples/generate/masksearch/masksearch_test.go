package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const committed = "../../masksearch"

// wordnet is WordNet's data.noun where scripts/fetch.py put it; nothing is fetched.
func wordnet(t testing.TB) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", "../../../scripts/fetch.py", "where-wordnet").Output()
	if err != nil || len(bytes.TrimSpace(out)) == 0 {
		t.Skip("WordNet is not in the cache folder (python3 scripts/fetch.py wordnet)")
	}
	data, err := os.ReadFile(filepath.Join(string(bytes.TrimSpace(out)), "data.noun"))
	require.NoError(t, err)
	return data
}

func readTasks(t testing.TB, name string) []task {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(committed, name))
	require.NoError(t, err)
	out, err := parseTasks(data)
	require.NoError(t, err)
	return out
}

func TestParseEntry(t *testing.T) {
	p, err := parseEntry(`08971914 15 n 03 Harare 0 Salisbury 0 capital_of_Zimbabwe 0 003 @i 08536745 n 0000 | the capital and largest city of Zimbabwe; "we flew to Harare"  `)
	require.NoError(t, err)
	require.Equal(t, passage{"n08971914", "Harare: the capital and largest city of Zimbabwe", "Harare"}, p)
	p, err = parseEntry(`11019640 18 n 03 Gauss 0 Karl_Gauss 0 Karl_Friedrich_Gauss 0 001 @i 10321013 n 0000 | German mathematician (1777-1855)`)
	require.NoError(t, err)
	require.Equal(t, "Karl Friedrich Gauss: German mathematician (1777-1855)", p.Text)
	for _, line := range []string{"", "08971914 15 n 01 Harare 0", "08971914 x n 01 Harare 0 000 | city", "08971914 15 n zz Harare 0 000 | city", "08971914 15 n ff Harare 0 000 | city", "08971914 15 n 00 Harare 0 000 | city"} {
		_, err := parseEntry(line)
		require.Error(t, err, line)
	}
}

func TestSpans(t *testing.T) {
	texts := func(name, definition string) []string {
		p := passage{"n1", name + ": " + definition, name}
		var out []string
		for _, s := range spans(p) {
			out = append(out, s.kind+" "+p.Text[s.start:s.end])
		}
		return out
	}
	require.Equal(t, []string{"title Harare", "name Zimbabwe"}, texts("Harare", "the capital and largest city of Zimbabwe"))
	require.Equal(t, []string{"title Karl Friedrich Gauss", "name German", "number 1777", "number 1855"}, texts("Karl Friedrich Gauss", "German mathematician (1777-1855)"))
	require.Equal(t, []string{"name Gulf of Mexico", "name Harry S. Truman", "number 3,500"}, texts("shelf", "in the Gulf of Mexico, which Harry S. Truman saw; 3,500 miles and 7 feet"))
	require.Empty(t, texts("dog", "a member of the genus canis that barks. The first word of a sentence; X and USA and 1st"))
	require.Equal(t, []string{"name São Tomé"}, texts("cocoa", "from São Tomé"))
}

func TestHidden(t *testing.T) {
	c := newCorpus(nil)
	c.often["german"] = mostOften + 1
	const rest = " with five more words to search for"
	require.True(t, c.hidden("Harare: capital of [1]"+rest, []string{"Zimbabwe"}))
	require.False(t, c.hidden("Harare: capital of [1]", []string{"Zimbabwe"}), "too little is left to search with")
	require.False(t, c.hidden("the [1] mathematician"+rest, []string{"German"}), "frequent")
	require.False(t, c.hidden("Germania: a part of [1]"+rest, []string{"Germany"}), "a visible word begins alike")
	require.False(t, c.hidden("of 1855 and [1]"+rest, []string{"1855"}), "a visible number")
	require.False(t, c.hidden("[1] or [2]"+rest, []string{"Paris", "Parisian"}), "another mask begins alike")
	require.True(t, c.hidden("the war of [1]"+rest, []string{"Battle of Hastings"}))
}

// The committed data are what the generator writes.
func TestCommittedData(t *testing.T) {
	all, err := files(wordnet(t))
	require.NoError(t, err)
	for name, want := range all {
		if name == "passages.jsonl" {
			require.GreaterOrEqual(t, bytes.Count(want, []byte("\n")), 10000, "passages")
			continue // it is not committed
		}
		got, err := os.ReadFile(filepath.Join(committed, name))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "examples/masksearch/%s differs; run the generator", name)
	}
}

// Each task of both files gives its passage back byte for byte, and nothing of what is masked can be seen.
func TestTasks(t *testing.T) {
	train, held := readTasks(t, "train.jsonl"), readTasks(t, "eval.jsonl")
	require.Len(t, train, trainTasks)
	require.Len(t, held, evalTasks)
	marks := regexp.MustCompile(`\[\d+\]`)
	for _, tasks := range [][]task{train, held} {
		for i, one := range tasks {
			text, err := restore(one.Question, one.Answers)
			require.NoError(t, err)
			require.Equal(t, one.SHA256, digest(text), one.ID)
			require.Equal(t, one.Masks, len(one.Answers))
			require.True(t, one.Masks >= 1 && one.Masks <= maxMasks)
			require.Equal(t, kinds[i%len(kinds)], one.Kind)
			require.Equal(t, one.Kind == kindSeveral, one.Masks > 1)
			require.Equal(t, strings.Join(one.Answers, "; "), one.Answer)
			found := marks.FindAllString(one.Question, -1)
			require.Len(t, found, one.Masks)
			visible := words(marks.ReplaceAllString(one.Question, " "))
			require.GreaterOrEqual(t, len(visible), minVisible)
			for k, a := range one.Answers {
				require.Equal(t, mark(k), found[k], "marks are in order")
				require.NotContains(t, a, ";")
				require.NotContains(t, strings.ToLower(marks.ReplaceAllString(one.Question, " ")), strings.ToLower(a), one.ID)
				for _, w := range words(a) {
					require.True(t, small[w] || !slices.ContainsFunc(visible, func(v string) bool { return stem(v) == stem(w) }), "%s: %q", one.ID, one.Question)
				}
			}
		}
	}
}

// No passage and no question is in both files or twice in one, and no text that an evaluation's task masks is masked elsewhere.
func TestHeldOut(t *testing.T) {
	passages, masked := map[string]bool{}, map[string]int{}
	for _, one := range readTasks(t, "train.jsonl") {
		require.False(t, passages[one.Passage] || passages[one.SHA256], one.ID)
		passages[one.Passage], passages[one.SHA256] = true, true
		for _, a := range one.Answers {
			masked[strings.ToLower(a)]++
			require.LessOrEqual(t, masked[strings.ToLower(a)], 3)
		}
	}
	for _, one := range readTasks(t, "eval.jsonl") {
		require.False(t, passages[one.Passage] || passages[one.SHA256], one.ID)
		passages[one.Passage], passages[one.SHA256] = true, true
		for _, a := range one.Answers {
			require.Zero(t, masked[strings.ToLower(a)], a)
			masked[strings.ToLower(a)]++
		}
	}
	data, err := os.ReadFile(filepath.Join(committed, "worked.jsonl"))
	require.NoError(t, err)
	for _, w := range workedPassages {
		require.False(t, passages[w.id])
	}
	require.Equal(t, len(workedPassages), bytes.Count(data, []byte("\n")))
}

// Rules that need no search fill next to no mask of the evaluation.
func TestTrivialRules(t *testing.T) {
	train, held := readTasks(t, "train.jsonl"), readTasks(t, "eval.jsonl")
	count, frequent := map[string]int{}, ""
	for _, one := range train {
		for _, a := range one.Answers {
			if count[a]++; count[a] > count[frequent] || count[a] == count[frequent] && a < frequent {
				frequent = a
			}
		}
	}
	number := regexp.MustCompile(`\d{3,4}`)
	year := func(one task, add int) string {
		visible := number.FindString(regexp.MustCompile(`\[\d+\]`).ReplaceAllString(one.Question, ""))
		n, _ := strconv.Atoi(visible)
		return strconv.Itoa(n + add)
	}
	rules := map[string]func(task) string{
		"the most frequent text of training": func(task) string { return frequent },
		"the visible number":                 func(one task) string { return year(one, 0) },
		"a life of 60 years":                 func(one task) string { return year(one, 60) },
		"a life of 70 years":                 func(one task) string { return year(one, 70) },
		"the year after":                     func(one task) string { return year(one, 1) },
		"the first word":                     func(one task) string { return words(one.Question)[0] },
	}
	for name, rule := range rules {
		right, masks := 0, 0
		for _, one := range held {
			for _, a := range one.Answers {
				masks++
				if strings.EqualFold(a, rule(one)) {
					right++
				}
			}
		}
		t.Logf("%s: %d of %d masks", name, right, masks)
		require.LessOrEqual(t, float64(right)/float64(masks), 0.03, name)
	}
}

// Any choice of spans of any passage is restored byte for byte, and spans never overlap.
func TestRestore(t *testing.T) {
	passages, err := readWordNet(wordnet(t))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(passages), 10000)
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range passages {
		found := spans(p)
		for i, s := range found {
			require.True(t, s.start < s.end && s.end <= len(p.Text), p.Text)
			if i > 0 {
				require.LessOrEqual(t, found[i-1].end, s.start, p.Text)
			}
		}
		order := r.Perm(len(found))[:min(len(found), 1+r.IntN(maxMasks))]
		slices.Sort(order)
		var masked []span
		for _, k := range order {
			masked = append(masked, found[k])
		}
		question, answers := cut(p, masked)
		text, err := restore(question, answers)
		require.NoError(t, err)
		require.Equal(t, p.Text, text)
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add("08971914 15 n 01 Harare 0 001 @i 08536745 n 0000 | the capital and largest city of Zimbabwe")
	f.Fuzz(func(t *testing.T, line string) {
		p, err := parseEntry(line)
		if err != nil || !readable(p) {
			t.Skip("no passage")
		}
		question, answers := cut(p, spans(p)[:min(len(spans(p)), maxMasks)])
		text, err := restore(question, answers)
		require.NoError(t, err)
		require.Equal(t, p.Text, text)
	})
}

// restore puts the masked texts back: the passage, byte for byte.
func restore(question string, answers []string) (string, error) {
	for i, a := range answers {
		before, after, found := strings.Cut(question, mark(i))
		if !found {
			return "", fmt.Errorf("generate: there is no %s in %q", mark(i), question)
		}
		question = before + a + after
	}
	return question, nil
}
