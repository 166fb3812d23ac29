package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// rooted has a session be the root of a tree, at a time that its replies tell.
func rooted(at time.Time) func(*gateway.Options, *gateway.SessionOptions) {
	return func(o *gateway.Options, so *gateway.SessionOptions) {
		o.Now, o.Ping = func() time.Time { return at }, time.Minute // so that replies have no keep-alives
		so.Tree = &gateway.Tree{}
	}
}

// leaf has a session fork off what a bench told, before the call of a turn.
func leaf(of *bench, turn int, set ...func(*gateway.Tree)) func(*gateway.Options, *gateway.SessionOptions) {
	return func(o *gateway.Options, so *gateway.SessionOptions) {
		o.Ping = time.Minute
		so.Name, so.Trajectory.ID = of.told.ID+".0", of.told.ID+".0"
		so.Tree = &gateway.Tree{Base: prefix(of.told, turn)}
		for _, t := range of.told.Turns[turn:] {
			so.Tree.Ahead = append(so.Tree.Ahead, t.Incoming.Digest)
		}
		for _, f := range set {
			f(so.Tree)
		}
	}
}

// prefix is the first turns of a trajectory.
func prefix(of *trajectory.Trajectory, turns int) *trajectory.Trajectory {
	out := &trajectory.Trajectory{Turns: of.Turns[:turns:turns]}
	for _, turn := range out.Turns {
		for len(out.Samples) <= turn.Sample {
			out.Samples = append(out.Samples, nil)
		}
		s := of.Samples[turn.Sample]
		out.Samples[turn.Sample] = &trajectory.Sample{
			TokenIDs: s.TokenIDs[:turn.CompletionEnd], ResponseMask: s.ResponseMask[:turn.CompletionEnd], SamplingLogprobs: s.SamplingLogprobs[:turn.CompletionEnd], PolicyVersion: s.PolicyVersion[:turn.CompletionEnd],
		}
	}
	return out
}

// The calls before a fork get the recorded replies, byte for byte in every dialect, ids and times included, and nothing is sampled for them; the next one is
// sampled. The tokens are the other trajectory's up to the fork, and the turns say who sampled them.
func TestAForkIsAnsweredFromTheRecord(t *testing.T) {
	chat := func(more string) func([]string) string {
		return func(replies []string) string {
			messages := []any{user("17*23?")}
			for _, r := range replies {
				var reply struct {
					Choices []struct{ Message map[string]any }
				}
				if json.Unmarshal([]byte(r), &reply) != nil || len(reply.Choices) == 0 {
					continue
				}
				m := reply.Choices[0].Message
				messages = append(messages, m)
				for _, c := range m["tool_calls"].([]any) {
					messages = append(messages, tool(c.(map[string]any)["id"].(string), "391"))
				}
			}
			body, _ := json.Marshal(messages)
			return `{"messages":` + string(body) + `,"tools":` + string(calculator) + more + `}`
		}
	}
	for name, c := range map[string]struct {
		path string
		body func(replies []string) string // of the next call
	}{
		"chat": {"/v1/chat/completions", chat("")},
		"chat, events": {"/v1/chat/completions", func(r []string) string {
			return fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":"%d"}]}`, len(r))
		}},
		"responses": {"/v1/responses", func(r []string) string { return fmt.Sprintf(`{"input":"call %d"}`, len(r)) }},
		"messages": {"/v1/messages", func(r []string) string {
			return fmt.Sprintf(`{"max_tokens":100,"messages":[{"role":"user","content":"call %d"}]}`, len(r))
		}},
		"completions": {"/v1/completions", func(r []string) string { return fmt.Sprintf(`{"prompt":"call %d"}`, len(r)) }},
	} {
		t.Run(name, func(t *testing.T) {
			first := newBench(t, byRound(callText, callText, "It is 391."), rooted(time.Unix(1700000000, 0)))
			var replies []string
			for range 3 {
				status, text := first.post(c.path, c.body(replies))
				require.Equal(t, http.StatusOK, status, text)
				replies = append(replies, text)
			}
			for i, turn := range first.told.Turns {
				require.Equal(t, trajectory.SharedName("train-0-0-0", i), turn.Shared)
			}
			second := newBench(t, byRound("It is 392."), leaf(first, 2))
			var again []string
			for i := range 3 {
				status, text := second.post(c.path, c.body(again))
				require.Equal(t, http.StatusOK, status, text)
				if again = append(again, text); i < 2 {
					require.Equal(t, replies[i], text)
					require.Empty(t, second.sampled, "call %d", i)
				}
			}
			require.NotEqual(t, replies[2], again[2])
			out := second.session.Finish()
			require.NoError(t, out.Err)
			require.Zero(t, out.Unasked)
			require.Len(t, second.sampled, 1)
			require.Len(t, second.told.Turns, 3)
			require.Equal(t, []int{3}, second.stored, "what is shared is stored with the first turn of its own")
			for i, turn := range second.told.Turns {
				was := first.told.Turns[i]
				end, by := was.CompletionStart, trajectory.SharedName("train-0-0-0", i)
				if i < 2 {
					end = was.CompletionEnd
				} else {
					by = trajectory.SharedName("train-0-0-0.0", i)
				}
				require.Equal(t, by, turn.Shared)
				require.Equal(t, was.Sample, turn.Sample)
				require.True(t, first.told.Samples[was.Sample].Prefix(end).Equal(second.told.Samples[turn.Sample].Prefix(end)))
				require.NotEqual(t, trajectory.RoleDiscarded, turn.Role)
			}
			require.NotEqual(t, first.told.Turns[2].Completion, second.told.Turns[2].Completion)
		})
	}
}

// An agent that asks for something else than was recorded before the fork gets no reply, and its session says what it asked and what was recorded. It gets
// none from then on either.
func TestAnotherRequestBeforeAFork(t *testing.T) {
	first := newBench(t, byRound("one", "two", "three"), rooted(time.Now()))
	say := func(text string) string { return `{"messages":[{"role":"user","content":"` + text + `"}]}` }
	for _, text := range []string{"a", "b", "c"} {
		first.post("/v1/chat/completions", say(text))
	}
	for name, c := range map[string]struct{ body, want string }{
		"other words":    {say("it is 12:01"), `call 2 asks for something else than was recorded: message 1 is {"role":"user","content":"it is 12:01"}, recorded is {"role":"user","content":"b"}`},
		"a message more": {`{"messages":[{"role":"user","content":"b"},{"role":"user","content":"now"}]}`, `message 2 is {"role":"user","content":"now"}, recorded is none`},
		"a setting":      {`{"temperature":0.5,"messages":[{"role":"user","content":"b"}]}`, `its parameters are {"temperature":0.5}, recorded are {}`},
		"tools":          {`{"tools":` + string(calculator) + `,"messages":[{"role":"user","content":"b"}]}`, `it offers other tools`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, byRound("new"), leaf(first, 2))
			status, _ := b.post("/v1/chat/completions", say("a"))
			require.Equal(t, http.StatusOK, status)
			for range 2 { // clients try some statuses again
				status, text := b.post("/v1/chat/completions", c.body)
				require.Equal(t, http.StatusBadRequest, status)
				require.Contains(t, text, "something else than was recorded")
			}
			status, _ = b.post("/v1/chat/completions", say("b"))
			require.Equal(t, http.StatusBadRequest, status)
			require.Empty(t, b.sampled)
			require.Empty(t, b.stored)
			out := b.session.Finish()
			require.True(t, errors.Is(out.Err, gateway.ErrOtherWay), out.Err)
			require.ErrorContains(t, out.Err, c.want)
		})
	}
	b := newBench(t, byRound("new"), leaf(first, 2))
	b.post("/v1/chat/completions", say("a"))
	require.Equal(t, 1, b.session.Finish().Unasked, "it ends before it was where it forks")
}

// Two equal requests get the two recorded replies in their order; who did not read a reply gets that one again.
func TestEqualRequestsBeforeAFork(t *testing.T) {
	first := newBench(t, byRound("one", "two", "three", "four"), rooted(time.Now()))
	ask := []map[string]any{user("x")}
	for _, want := range []string{"one", "two", "three", "four"} {
		require.Equal(t, want, first.chat(ask)["content"])
	}
	b := newBench(t, byRound("new"), leaf(first, 3))
	require.Equal(t, "one", b.chat(ask)["content"])
	_, text := b.post("/v1/chat/completions", `{"model":"gpt-5","messages":[{"content":"x","role":"user"}]}`, "X-Stainless-Retry-Count", "1")
	require.Contains(t, text, `"one"`)
	for _, want := range []string{"two", "three", "new"} {
		require.Equal(t, want, b.chat(ask)["content"])
	}
	require.NoError(t, b.session.Finish().Err)
	require.Len(t, b.told.Turns, 4)
}

// Calls that an agent made side by side may come in another order: one that was made behind the fork, and one that goes on after it, are sampled before those
// that stand before it came again.
func TestCallsSideBySideBeforeAFork(t *testing.T) {
	first := newBench(t, byRound("one", "two", "three"), rooted(time.Now()))
	for _, text := range []string{"a", "b"} {
		first.chat([]map[string]any{user(text)})
	}
	b := newBench(t, byRound("new", "newer"), leaf(first, 1))
	messages := []map[string]any{user("b")}
	m := b.chat(messages)
	require.Equal(t, "new", m["content"])
	require.Equal(t, "newer", b.chat(append(messages, m, user("more")))["content"])
	require.Equal(t, "one", b.chat([]map[string]any{user("a")})["content"])
	out := b.session.Finish()
	require.NoError(t, out.Err)
	require.Zero(t, out.Unasked)
	require.Len(t, b.told.Turns, 3)
	require.Equal(t, "train-0-0-0:0", b.told.Turns[0].Shared)

	b = newBench(t, byRound("new"), leaf(first, 1)) // the call behind the fork does not make good for the one before
	b.chat([]map[string]any{user("b")})
	require.Equal(t, 1, b.session.Finish().Unasked)
}

// An agent that compacts its history when it is too long does so again: the call that is too long is no other way. Its history before and behind are two
// samples, and sub-agents have more.
func TestAForkOfSeveralSamples(t *testing.T) {
	small := func(o *gateway.Options, _ *gateway.SessionOptions) { o.MaxTotal = 400 }
	run := func(b *bench) (texts []string) {
		messages := []map[string]any{user("a task"), {"role": "assistant", "content": "x"}, user(strings.Repeat("long", 20))}
		for len(texts) < 6 {
			body, err := json.Marshal(map[string]any{"messages": messages})
			require.NoError(b.t, err)
			status, text := b.post("/v1/chat/completions", string(body))
			if status == http.StatusBadRequest && strings.Contains(text, "maximum context length") {
				texts = append(texts, text)
				messages = []map[string]any{user("a task"), user("summary")}
				continue
			}
			require.Equal(b.t, http.StatusOK, status, text)
			texts = append(texts, text)
			var reply struct {
				Choices []struct{ Message map[string]any }
			}
			require.NoError(b.t, json.Unmarshal([]byte(text), &reply))
			messages = append(messages, reply.Choices[0].Message, user(strings.Repeat("and", 30)))
		}
		return texts
	}
	first := newBench(t, byRound("one", "two", "three", "four", "five", "six"), rooted(time.Unix(1, 0)), small)
	texts := run(first)
	require.Greater(t, len(first.told.Samples), 1)
	for turn := 1; turn < len(first.told.Turns); turn++ {
		b := newBench(t, byRound("n1", "n2", "n3", "n4", "n5", "n6"), leaf(first, turn), small)
		again := run(b)
		out := b.session.Finish()
		require.NoError(t, out.Err)
		require.Zero(t, out.Unasked)
		require.Equal(t, len(b.told.Turns)-turn, len(b.sampled))
		same := 0
		for same < len(texts) && texts[same] == again[same] {
			same++
		}
		require.GreaterOrEqual(t, same, turn)
		for i := range turn {
			is, was := b.told.Turns[i], first.told.Turns[i]
			require.Equal(t, was.Sample, is.Sample)
			require.True(t, first.told.Samples[was.Sample].Prefix(was.CompletionEnd).Equal(b.told.Samples[is.Sample].Prefix(is.CompletionEnd)))
		}
	}
}

// A fork within a reply: the engine gets the tokens that the other one sampled before the place behind the prompt, may sample so many less, and the reply is
// read from the whole.
func TestAForkWithinAReply(t *testing.T) {
	first := newBench(t, byRound("one", "It is 391."), rooted(time.Now()))
	m := first.chat([]map[string]any{user("x")})
	messages := []map[string]any{user("x"), m, user("and?")}
	first.chat(messages, "max_tokens", 40)
	turn := first.told.Turns[1]
	s := first.told.Samples[turn.Sample]
	from, to := turn.CompletionStart, turn.CompletionStart+6
	within := func(tree *gateway.Tree) {
		tree.Begun = &gateway.Begun{
			Incoming: turn.Incoming, Prompt: s.Prefix(from), By: []trajectory.Begun{{Shared: turn.Shared, End: 6}},
			IDs: s.TokenIDs[from:to], Logprobs: s.SamplingLogprobs[from:to], Versions: s.PolicyVersion[from:to],
		}
	}
	var asked []engines.Request
	failed := false
	b := newBench(t, func(q engines.Request) (engines.Completion, error) {
		if !failed {
			failed = true
			return engines.Completion{}, errors.New("the engine is restarted")
		}
		asked = append(asked, q)
		return rollouttest.Say("442.")
	}, leaf(first, 1, within))
	m = b.chat([]map[string]any{user("x")})
	require.Equal(t, "one", m["content"])
	again, err := json.Marshal(map[string]any{"messages": []any{user("x"), m, user("and?")}, "max_tokens": 40, "model": "gpt-5"})
	require.NoError(t, err)
	status, text := b.post("/v1/chat/completions", string(again))
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	m = b.chat([]map[string]any{user("x"), m, user("and?")}, "max_tokens", 40)
	require.Equal(t, "It is 442.", m["content"])
	require.Equal(t, s.TokenIDs[:to], asked[0].Prompt)
	require.Equal(t, 34, asked[0].Sampling.MaxTokens)
	got := b.told.Turns[1]
	require.Equal(t, []trajectory.Begun{{Shared: "train-0-0-0:1", End: 6}}, got.Begun)
	require.Equal(t, "train-0-0-0.0:1", got.Shared)
	require.Equal(t, "It is 442.", got.Completion)
	b.chat([]map[string]any{user("x"), m, user("more")})
	require.NotContains(t, string(rollouttest.Decode(asked[1].Prompt[len(asked[1].Prompt)-6:])), "It is", "it begins one reply")
	require.Equal(t, gateway.Outcome{Calls: 4}, b.session.Finish())

	other := newBench(t, byRound("no"), leaf(first, 1, within))
	m = other.chat([]map[string]any{user("x")})
	body, err := json.Marshal(map[string]any{"messages": []any{user("x"), m, user("something else")}})
	require.NoError(t, err)
	status, text = other.post("/v1/chat/completions", string(body))
	require.Equal(t, http.StatusBadRequest, status, text)
	require.True(t, errors.Is(other.session.Finish().Err, gateway.ErrOtherWay))
	early := newBench(t, byRound("no"), leaf(first, 1, within))
	early.chat([]map[string]any{user("x")})
	require.Equal(t, 1, early.session.Finish().Unasked, "the call that it forks within")
}

// A leaf that was being sampled when the process ended goes on: what was recorded of its own turns is taken, and what it forks off is still asked for as it
// was. What was posted for a shared call counts once for it.
func TestAForkOutlivesAKill(t *testing.T) {
	first := newBench(t, byRound("one", "two"), rooted(time.Now()))
	drive := func(b *bench, calls int) {
		messages := []map[string]any{user("x")}
		for range calls {
			m := b.chat(messages)
			messages = append(messages, m, user("and?"))
		}
		_, _ = b.post("/agentfly/reward", `{"reward":0.25,"call":"chatcmpl-train-0-0-0-0"}`)
	}
	drive(first, 2)
	killed := newBench(t, byRound("own", "mine"), leaf(first, 1))
	drive(killed, 3)
	require.Equal(t, []string{"one", "own", "mine"}, completions(killed.told))
	again := newBench(t, byRound("never", "last"), leaf(first, 1), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered = killed.told })
	drive(again, 3)
	require.Empty(t, again.sampled)
	require.Zero(t, again.rewrote, "the log is as it was")
	require.Equal(t, gateway.Outcome{Calls: 3}, again.session.Finish())
	require.Equal(t, completions(killed.told), completions(again.told))
	require.Equal(t, 0.25, *again.told.Turns[0].Reward)
	for i := range killed.told.Turns {
		require.Equal(t, killed.told.Turns[i].Shared, again.told.Turns[i].Shared)
	}
	require.Equal(t, killed.told.Samples, again.told.Samples)
}

func completions(t *trajectory.Trajectory) (out []string) {
	for _, turn := range t.Turns {
		out = append(out, turn.Completion)
	}
	return out
}

// Calls of a fork that are asked for again while their replies are being read are counted one by one: side by side, each recorded reply goes to one of them.
func TestEqualRequestsAtOnceBeforeAFork(t *testing.T) {
	first := newBench(t, byRound("one", "two", "three"), rooted(time.Now()))
	for range 3 {
		first.chat([]map[string]any{user("x")})
	}
	for range 20 {
		b := newBench(t, byRound("new"), leaf(first, 2))
		var mu sync.Mutex
		got := map[string]int{}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				m := b.chat([]map[string]any{user("x")})
				mu.Lock()
				defer mu.Unlock()
				got[m["content"].(string)]++
			})
		}
		all.Wait()
		require.Equal(t, map[string]int{"one": 1, "two": 1}, got)
	}
}

// A form that cannot be held is refused and is no turn. The agent of a leaf asks for it again before the fork, gets the same refusal, and goes on: it went no
// other way.
func TestARefusedFormBeforeAFork(t *testing.T) {
	held := func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Engine, o.Forms = holding{o.Engine}, forms.New(tokens{}, 258, []int32{rollouttest.End})
	}
	calls := []string{
		`{"messages":[{"role":"user","content":"a"}]}`,
		`{"messages":[{"role":"user","content":"b"}],"structured_outputs":{"regex":"(?=a)"}}`,
		`{"messages":[{"role":"user","content":"c"}]}`,
		`{"messages":[{"role":"user","content":"d"}]}`,
	}
	ask := func(b *bench) (told []string) {
		for _, body := range calls {
			status, text := b.post("/v1/chat/completions", body)
			told = append(told, fmt.Sprintf("%d %s", status, text))
		}
		return told
	}
	first := newBench(t, byRound("one", "two", "three"), rooted(time.Unix(1700000000, 0)), held)
	was := ask(first)
	require.Contains(t, was[1], "400 ")
	require.Contains(t, was[1], "structured_outputs: error parsing regexp")
	require.Len(t, first.told.Turns, 3)
	second := newBench(t, byRound("four"), leaf(first, 2), held)
	again := ask(second)
	require.Equal(t, was[:3], again[:3])
	require.Contains(t, again[3], "four")
	out := second.session.Finish()
	require.NoError(t, out.Err)
	require.Zero(t, out.Unasked)
}

// A session whose trajectory forks off what cannot be read is refused by name, before anything is sampled or recorded for it, and its key stays free.
func TestAForkOfWhatCannotBeRead(t *testing.T) {
	first := newBench(t, byRound("one", "two", "three"), rooted(time.Now()))
	for _, text := range []string{"a", "b"} {
		first.chat([]map[string]any{user(text)})
	}
	b := newBench(t, byRound("new"))
	base := prefix(first.told, 2)
	in := *base.Turns[1].Incoming
	in.Digest = "?"
	base.Turns = append([]trajectory.Turn{}, base.Turns...)
	base.Turns[1].Incoming = &in
	o := gateway.SessionOptions{Name: "train-0-0-0.0", Key: "sk-other", Trajectory: &trajectory.Trajectory{ID: "train-0-0-0.0"}, Tree: &gateway.Tree{Base: base}}
	for range 2 {
		_, err := b.gate.Open(o)
		require.ErrorIs(t, err, gateway.ErrLost)
		require.Empty(t, o.Trajectory.Turns)
		require.Empty(t, o.Trajectory.Samples)
	}
	o.Tree.Base = prefix(first.told, 2)
	s, err := b.gate.Open(o)
	require.NoError(t, err)
	s.End()
}
