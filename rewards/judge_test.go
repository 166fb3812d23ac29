package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// endpoint is a local stand-in for a judge. reply gets the number of the request, from 1, and the question.
type endpoint struct {
	*httptest.Server
	requests atomic.Int64
	mu       sync.Mutex
	bodies   []map[string]any
	keys     []string
}

func newEndpoint(t *testing.T, reply func(w http.ResponseWriter, n int64, question string)) *endpoint {
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := e.requests.Add(1)
		data, _ := io.ReadAll(r.Body)
		var body map[string]any
		_ = json.Unmarshal(data, &body)
		e.mu.Lock()
		e.bodies, e.keys = append(e.bodies, body), append(e.keys, r.Header.Get("Authorization"))
		e.mu.Unlock()
		if r.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		messages := body["messages"].([]any)
		reply(w, n, messages[len(messages)-1].(map[string]any)["content"].(string))
	}))
	t.Cleanup(e.Close)
	return e
}

func says(w http.ResponseWriter, text string) { ends(w, text, "stop") }

// ends says why the text ended, too.
func ends(w http.ResponseWriter, text, reason string) {
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": text}, "finish_reason": reason}}})
}

// judging makes a judge of the endpoint with a cache of its own. What it would pause is recorded, not waited for.
func judging(t *testing.T, e *endpoint, params map[string]any) (*judge, *[]time.Duration) {
	t.Helper()
	res := resources.New(resources.Options{Cache: t.TempDir()})
	t.Cleanup(func() { require.NoError(t, res.Close()) })
	all := map[string]any{"url": e.URL + "/v1", "model": "m", "api_key": "k3y", "prompt": "Q: {question} A: {response} right: {answer} Correct?"}
	for k, v := range params {
		all[k] = v
	}
	r, err := Prebuilt().Builder(t.Context(), res).Make("judge", all)
	require.NoError(t, err)
	j := r.(*judge)
	var mu sync.Mutex
	pauses := &[]time.Duration{}
	j.pause = func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		*pauses = append(*pauses, d)
		return ctx.Err()
	}
	return j, pauses
}

func judged(text string) Input {
	in := input(map[string]any{"answer": []any{"Paris", "City"}}, answer(text))
	in.Task.Prompt = []trajectory.Message{trajectory.Text("system", "s"), trajectory.Text("user", "Capital {x}?")}
	return in
}

func TestJudgeAsksAndKeeps(t *testing.T) {
	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, question string) {
		if question == "Q: Capital {x}? A: Paris right: Paris\nCity Correct?" {
			says(w, "It is the same.\n\nAnswer: Yes.")
			return
		}
		says(w, "No")
	})
	j, pauses := judging(t, e, map[string]any{"system": "Judge."})
	require.Equal(t, Score{1, map[string]float64{"cached": 0}}, scored(t, j, judged("Paris")))
	require.Equal(t, Score{1, map[string]float64{"cached": 1}}, scored(t, j, judged("Paris")))
	require.Equal(t, Score{0, map[string]float64{"cached": 0}}, scored(t, j, judged("Lyon")))
	require.EqualValues(t, 2, e.requests.Load())
	require.Empty(t, *pauses)
	require.Equal(t, []string{"Bearer k3y", "Bearer k3y"}, e.keys)
	require.Equal(t, "m", e.bodies[0]["model"])
	require.Equal(t, map[string]any{"role": "system", "content": "Judge."}, e.bodies[0]["messages"].([]any)[0])
	require.Less(t, e.bodies[0]["temperature"], 1e-30)

	off, _ := judging(t, e, map[string]any{"no_cache": true})
	require.Equal(t, 0.0, scored(t, off, judged("Paris")).Parts["cached"])
	require.Equal(t, 0.0, scored(t, off, judged("Paris")).Parts["cached"])
	require.EqualValues(t, 4, e.requests.Load())
}

// A reasoning model takes no temperature; OpenAI refuses the request, and go-openai does not even send it.
func TestJudgeOfAReasoningModel(t *testing.T) {
	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { says(w, "yes") })
	for i, model := range []string{"o1", "o3-mini", "o4-mini", "gpt-5-mini", "gpt-6-sol", "gpt-6-astra"} {
		j, pauses := judging(t, e, map[string]any{"model": model})
		require.Equal(t, 1.0, scored(t, j, judged("Paris")).Value)
		require.EqualValues(t, i+1, e.requests.Load(), model)
		require.Empty(t, *pauses)
		require.Equal(t, model, e.bodies[i]["model"])
		require.NotContains(t, e.bodies[i], "temperature", model)
	}
}

func TestJudgeReadsStrictly(t *testing.T) {
	yesNo := &judge{judgeParams: judgeParams{Answer: "yes_no"}}
	number := &judge{judgeParams: judgeParams{Answer: "number", Min: 1, Max: 5}}
	for text, want := range map[string]float64{
		"yes": 1, "No.": 0, "**Yes**": 1, "Answer: no": 0, "<think>yes or no</think>\nNo": 0, "I think so.\nVerdict: YES": 1, "**Final answer:** yes": 1,
	} {
		got, err := yesNo.read(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]float64{"1": 0, "5": 1, "Score: 3": 0.5, "so\n**Score:** 4.": 0.75, "2.5": 0.375} {
		got, err := number.read(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "yes and no", "Yes, it is", "maybe", "yes\nbecause", "1", "nope"} {
		_, err := yesNo.read(text)
		require.ErrorContains(t, err, "does not end in a line yes or no", text)
	}
	for _, text := range []string{"", "yes", "4/5", "3 of 5", "NaN", "1e0", "0x3", "4\nis my score"} {
		_, err := number.read(text)
		require.ErrorContains(t, err, "does not end in a line with a number alone", text)
	}
	for _, text := range []string{"0", "6", "-1", "5.01"} {
		_, err := number.read(text)
		require.EqualError(t, err, fmt.Sprintf("the judge's number is %s; it must be from 1 to 5", text))
	}
}

func TestJudgeTriesAgain(t *testing.T) {
	e := newEndpoint(t, func(w http.ResponseWriter, n int64, _ string) {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "7")
			http.Error(w, `{"error": {"message": "slow down"}}`, http.StatusTooManyRequests)
		case 2:
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
		case 3:
			says(w, "It depends.")
		default:
			says(w, "yes")
		}
	})
	j, pauses := judging(t, e, nil)
	require.Equal(t, 1.0, scored(t, j, judged("Paris")).Value)
	require.Equal(t, []time.Duration{7 * time.Second, time.Second, 2 * time.Second}, *pauses)

	down := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { http.Error(w, "no", http.StatusInternalServerError) })
	j, pauses = judging(t, down, map[string]any{"attempts": 3})
	_, err := j.Score(t.Context(), judged("Paris"))
	require.ErrorContains(t, err, "after 3 attempts: ")
	require.EqualValues(t, 3, down.requests.Load())
	require.Equal(t, []time.Duration{500 * time.Millisecond, time.Second}, *pauses)
	_, err = j.Score(t.Context(), judged("Paris"))
	require.Error(t, err, "a failure is not kept")
	require.EqualValues(t, 6, down.requests.Load())

	closed := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) {
		http.Error(w, `{"error": {"message": "wrong key"}}`, http.StatusUnauthorized)
	})
	j, _ = judging(t, closed, nil)
	_, err = j.Score(t.Context(), judged("Paris"))
	require.ErrorContains(t, err, "wrong key")
	require.NotContains(t, err.Error(), "k3y")
	require.EqualValues(t, 1, closed.requests.Load(), "not tried again")
}

// An answer that max_tokens cut would be cut again: it is paid for once, and the error names the setting. A verdict that can be read counts.
func TestJudgeThatIsCut(t *testing.T) {
	for _, text := range []string{"", "Let me see. Paris is"} {
		e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { ends(w, text, "length") })
		j, pauses := judging(t, e, nil)
		_, err := j.Score(t.Context(), judged("Paris"))
		require.EqualError(t, err, e.URL+"/v1: the judge's answer was cut at 512 tokens, before a verdict; raise max_tokens, which a reasoning model's thoughts count against too")
		require.EqualValues(t, 1, e.requests.Load())
		require.Empty(t, *pauses)
	}
	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { ends(w, "Yes", "length") })
	j, _ := judging(t, e, map[string]any{"max_tokens": 1})
	require.Equal(t, 1.0, scored(t, j, judged("Paris")).Value)
}

// An answer of which max_tokens cut the rest is no verdict because its last line looks like one: that is a thought, or half a number.
func TestJudgeThatIsCutBehindAVerdict(t *testing.T) {
	for name, c := range map[string]struct{ kind, text string }{
		"a thought":           {"yes_no", "<think>Let me see. Is the first step right?\nYes."},
		"a thought's number":  {"number", "<think>Count the steps that are right.\n1"},
		"a thought unmarked":  {"yes_no", "Is the first step right?\nYes."},
		"half a number":       {"number", "Most of it is right.\nScore: 1"},
		"half a number alone": {"number", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { ends(w, c.text, "length") })
			j, _ := judging(t, e, map[string]any{"answer": c.kind, "max": 10})
			_, err := j.Score(t.Context(), judged("Paris"))
			require.EqualError(t, err, e.URL+"/v1: the judge's answer was cut at 512 tokens, before a verdict; raise max_tokens, which a reasoning model's thoughts count against too")
		})
	}
	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { ends(w, "<think>It is.</think>\nYes", "length") })
	j, _ := judging(t, e, nil)
	require.Equal(t, 1.0, scored(t, j, judged("Paris")).Value, "all that follows the thought is the verdict")
}

// A kept answer that a power cut emptied is asked for anew and replaced; it failed its trajectories in every run.
func TestJudgeKeepsNothingThatCannotBeRead(t *testing.T) {
	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { says(w, "yes") })
	j, _ := judging(t, e, nil)
	require.Equal(t, 0.0, scored(t, j, judged("Paris")).Parts["cached"])
	files, err := filepath.Glob(filepath.Join(j.cache.folder, "*", "*.txt"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	for n, damaged := range []string{"", "\x00\x00\x00"} {
		require.NoError(t, os.WriteFile(files[0], []byte(damaged), 0o644))
		require.Equal(t, Score{1, map[string]float64{"cached": 0}}, scored(t, j, judged("Paris")))
		require.Equal(t, Score{1, map[string]float64{"cached": 1}}, scored(t, j, judged("Paris")))
		require.EqualValues(t, n+2, e.requests.Load())
	}
}

// TestJudgeDeadline: an endpoint that does not answer ends with the caller's deadline, and each attempt with its own.
func TestJudgeDeadline(t *testing.T) {
	free := make(chan struct{})
	e := newEndpoint(t, func(w http.ResponseWriter, n int64, _ string) {
		if n > 2 {
			says(w, "yes")
			return
		}
		<-free
	})
	defer close(free)
	j, _ := judging(t, e, map[string]any{"timeout": 0.05})
	require.Equal(t, 1.0, scored(t, j, judged("Paris")).Value, "the third attempt")
	e.requests.Store(0)
	j, _ = judging(t, e, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := j.Score(ctx, judged("Paris"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestJudgeConcurrency: never more requests at once than allowed, and the same question at the same time is asked once.
func TestJudgeConcurrency(t *testing.T) {
	var running, most atomic.Int64
	three := make(chan struct{})
	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) {
		n := running.Add(1)
		defer running.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		if n == 3 {
			close(three)
		}
		<-three // the first ones wait until three are there
		says(w, "yes")
	})
	j, _ := judging(t, e, map[string]any{"concurrency": 3})
	var all sync.WaitGroup
	var failures atomic.Int64
	for i := range 3 {
		for range 5 {
			all.Go(func() {
				if s, err := j.Score(t.Context(), judged(fmt.Sprint("answer ", i))); err != nil || s.Value != 1 {
					failures.Add(1)
				}
			})
		}
	}
	all.Wait()
	require.Zero(t, failures.Load())
	require.EqualValues(t, 3, e.requests.Load(), "15 scores, three questions")
	require.EqualValues(t, 3, most.Load())

	running.Store(-1 << 30) // nobody is the third any more
	one, _ := judging(t, e, map[string]any{"concurrency": 1, "no_cache": true})
	one.slots <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := one.Score(ctx, judged("x"))
	require.EqualError(t, err, "waiting for one of 1 places: context canceled")
}

// TestAnswersWait: who waits for another's question asks it when that fails.
func TestAnswersWait(t *testing.T) {
	a := &answers{folder: t.TempDir(), pending: map[string]*pendingAnswer{}}
	q := (&judge{}).questionOf("x")
	good := func(text string) bool { return text == "again" }
	asking, fail := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		_, _, err := a.get(t.Context(), "k", q, good, func() (string, error) {
			close(asking)
			<-fail
			return "", errors.New("mine")
		})
		first <- err
	}()
	<-asking
	second := make(chan string)
	go func() {
		text, _, _ := a.get(t.Context(), "k", q, good, func() (string, error) { return "again", nil })
		second <- text
	}()
	close(fail)
	require.EqualError(t, <-first, "mine")
	require.Equal(t, "again", <-second)
	text, cached, err := a.get(t.Context(), "k", q, good, nil)
	require.NoError(t, err)
	require.Equal(t, "again", text)
	require.True(t, cached)
}

func TestJudgeRefuses(t *testing.T) {
	good := map[string]any{"url": "http://127.0.0.1:1/v1", "model": "m", "prompt": "{response}"}
	for want, change := range map[string]map[string]any{
		`the parameter url is "x"; it must begin with http:// or https://, such as http://127.0.0.1:8000/v1`: {"url": "x"},
		"the parameter model is missing: the endpoint's name of the judge":                                   {"model": ""},
		`the parameter answer is "stars"; allowed: yes_no, number`:                                           {"answer": "stars"},
		"the parameter min must be below max":                                                                {"min": 3, "max": 3},
		"max_tokens, timeout, attempts and concurrency must be above 0":                                      {"concurrency": 0},
		"the parameter prompt has a single {; write {NAME} for a field, {{ for a brace":                      {"prompt": "{response"},
		`the parameters cannot be read: unknown field "temperature"; allowed: url, model, api_key, prompt, system, answer, min, max, max_tokens, timeout, attempts, concurrency, no_cache`: {"temperature": 1},
	} {
		params := map[string]any{}
		for _, m := range []map[string]any{good, change} {
			for k, v := range m {
				params[k] = v
			}
		}
		refused(t, "judge", params, "rewards: judge: "+want)
	}
	text, err := fill("{{{a}}} {b}", func(name string) (string, error) { return name + "{c}", nil })
	require.NoError(t, err)
	require.Equal(t, "{a{c}} b{c}", text, "what is filled in is not read again")

	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { says(w, "yes") })
	j, _ := judging(t, e, map[string]any{"prompt": "{transcript} {missing}"})
	_, err = j.Score(t.Context(), judged("x"))
	require.EqualError(t, err, `task "t1" has no field "missing"; add the column to the data or name another one`)
	require.Zero(t, e.requests.Load())
	require.Equal(t, "[turn 1]\nsearch it\n[result of search]\nfound\n[turn 2]\nso", transcript(&trajectory.Trajectory{Turns: []trajectory.Turn{searched("search it\n", "found"), {Completion: "so"}}}))
}

// TestJudgeLeavesNothing: closing the resources closes the connections.
func TestJudgeLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	e := newEndpoint(t, func(w http.ResponseWriter, _ int64, _ string) { says(w, "yes") })
	res := resources.New(resources.Options{Cache: t.TempDir()})
	r, err := Prebuilt().Builder(t.Context(), res).Make("judge", map[string]any{"url": e.URL + "/v1", "model": "m", "prompt": "{response}"})
	require.NoError(t, err)
	require.Equal(t, 1.0, scored(t, r, judged("x")).Value)
	require.NoError(t, res.Close())
	e.Close()
	goleak.VerifyNone(t, before)
}
