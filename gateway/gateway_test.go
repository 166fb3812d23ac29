package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// bench is a gateway over a scripted engine, behind a server.
type bench struct {
	t       testing.TB
	gate    *gateway.Gateway
	url     string
	session *gateway.Session
	told    *trajectory.Trajectory
	mu      sync.Mutex
	stored  []int // turns at each record
	rewrote int
	sampled []engines.Completion // in the order in which the engine ended them
}

const testKey = "sk-test"

// newBench has a script answer for the policy.
func newBench(t testing.TB, say rollouttest.Script, set ...func(*gateway.Options, *gateway.SessionOptions)) *bench {
	t.Helper()
	b := &bench{t: t, told: &trajectory.Trajectory{ID: "train-0-0-0"}}
	engine := scripted.New(scripted.Options{Decode: rollouttest.Decode, Version: 7, MaxModelLen: 1 << 20, Respond: func(r engines.Request) (engines.Completion, error) {
		c, err := say(r)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sampled = append(b.sampled, c)
		return c, err
	}})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	renderer := rollouttest.Renderer(t, rollouttest.ChatML)
	o := gateway.Options{
		Engine: engine, Renderer: renderer, Decode: rollouttest.Decode, Encode: rollouttest.Letters{}.Encode, Model: "policy",
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("hermes", specs, agents.FormatOptions{})
		},
		Sampling: engines.Sampling{MaxTokens: 500, Temperature: 1, TopP: 1, StopIDs: renderer.StopIDs()}, MaxTotal: 100_000, Ping: 10 * time.Millisecond,
	}
	so := gateway.SessionOptions{
		Name: b.told.ID, Key: testKey, Trajectory: b.told, Seed: func(n int) uint64 { return uint64(100 + n) },
		Record: func(_ context.Context, tr *trajectory.Trajectory) error {
			b.stored = append(b.stored, len(tr.Turns))
			return nil
		},
		Rewrite: func() { b.rewrote++ },
	}
	for _, f := range set {
		f(&o, &so)
	}
	var err error
	b.gate, err = gateway.New(o)
	require.NoError(t, err)
	t.Cleanup(b.gate.Close)
	b.session, err = b.gate.Open(so)
	require.NoError(t, err)
	server := httptest.NewServer(b.gate)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// post sends a body and returns status and reply.
func (b *bench) post(path, body string, headers ...string) (int, string) {
	b.t.Helper()
	r, err := http.NewRequest(http.MethodPost, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+testKey)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(b.t, err)
	return reply.StatusCode, string(text)
}

// chat asks for a chat completion and returns the assistant's message as the client has it.
func (b *bench) chat(messages []map[string]any, more ...any) map[string]any {
	b.t.Helper()
	q := map[string]any{"model": "gpt-5", "messages": messages}
	for i := 0; i+1 < len(more); i += 2 {
		q[more[i].(string)] = more[i+1]
	}
	body, err := json.Marshal(q)
	require.NoError(b.t, err)
	status, text := b.post("/v1/chat/completions", string(body))
	require.Equal(b.t, http.StatusOK, status, text)
	var reply struct {
		Choices []struct {
			Message map[string]any `json:"message"`
			Finish  string         `json:"finish_reason"`
		} `json:"choices"`
	}
	require.NoError(b.t, json.Unmarshal([]byte(text), &reply), text)
	return reply.Choices[0].Message
}

func user(text string) map[string]any { return map[string]any{"role": "user", "content": text} }

func tool(id, text string) map[string]any {
	return map[string]any{"role": "tool", "tool_call_id": id, "content": text}
}

var calculator = json.RawMessage(`[{"type":"function","function":{"name":"calculator","parameters":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}}}}}]`)

// call is a completion that calls the calculator.
const callText = `I compute. <tool_call>{"name": "calculator", "arguments": { "b" :23 ,"a" :17}}</tool_call>`

// byRound says one text after another.
func byRound(texts ...string) rollouttest.Script {
	var mu sync.Mutex
	n := 0
	return func(engines.Request) (engines.Completion, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		return rollouttest.Say(texts[(n-1)%len(texts)])
	}
}

// A loop with a tool is one sample, though the client writes its own turn in other words; every sampled id is trained once, and nothing else.
func TestALoopWithAToolIsOneSample(t *testing.T) {
	for name, echo := range map[string]func(m map[string]any){
		"verbatim":  func(map[string]any) {},
		"reordered": func(m map[string]any) { setArguments(m, `{"a": 17.0, "b":2.3e1}`) },
		"empty content": func(m map[string]any) {
			m["content"] = []map[string]any{{"type": "text", "text": "I compute."}}
			m["refusal"] = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, byRound(callText, "It is 391."))
			messages := []map[string]any{user("17*23?")}
			m := b.chat(messages, "tools", calculator)
			require.Equal(t, "I compute.", m["content"])
			call := m["tool_calls"].([]any)[0].(map[string]any)
			echo(m)
			messages = append(messages, m, tool(call["id"].(string), "391"))
			m = b.chat(messages, "tools", calculator)
			require.Equal(t, "It is 391.", m["content"])
			out := b.session.Finish()
			require.Equal(t, gateway.Outcome{Calls: 2}, out)
			require.Len(t, b.told.Samples, 1)
			b.check()
			answer, turn := b.told.FinalAnswer()
			require.Equal(t, "It is 391.", answer)
			require.Equal(t, 1, turn)
			require.Equal(t, 0, b.told.Turns[1].Incoming.After)
			require.Equal(t, []int{1, 2}, b.stored)
			require.Contains(t, rollouttest.Letters{}.Decode(b.told.Samples[0].TokenIDs, false), callText+"<|im_end|>\n<|im_start|>tool\n391<|im_end|>")
		})
	}
}

func setArguments(m map[string]any, text string) {
	m["tool_calls"].([]any)[0].(map[string]any)["function"].(map[string]any)["arguments"] = text
}

// check holds the trajectory against what the engine sampled: each completion is trained once, as it was sampled, and nothing else is.
func (b *bench) check() {
	b.t.Helper()
	want := map[string]int{}
	for _, c := range b.sampled {
		want[fmt.Sprint(c.TokenIDs)]++
	}
	sampled := 0
	for _, turn := range b.told.Turns {
		s := b.told.Samples[turn.Sample]
		ids := fmt.Sprint(s.TokenIDs[turn.CompletionStart:turn.CompletionEnd])
		require.Positive(b.t, want[ids], "turn %q was not sampled, or is there twice", turn.Completion)
		want[ids]--
		sampled += turn.CompletionEnd - turn.CompletionStart
		for i := turn.CompletionStart; i < turn.CompletionEnd; i++ {
			require.True(b.t, s.ResponseMask[i])
		}
	}
	for _, s := range b.told.Samples {
		require.NoError(b.t, s.Check())
	}
	require.Equal(b.t, sampled, b.told.ResponseTokens(), "what was trained and belongs to no turn")
}

// Another key is refused, in the words of the API that is spoken; a session that ended says so.
func TestKeys(t *testing.T) {
	b := newBench(t, byRound("hello"))
	body := `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`
	for _, c := range []struct{ path, header, value string }{
		{"/v1/chat/completions", "Authorization", "Bearer " + testKey},
		{"/v1/messages", "X-Api-Key", testKey},
		{"/v1/messages?beta=true", "X-Goog-Api-Key", testKey},
		{"/s/" + testKey + "/v1/chat/completions", "X-None", ""},
	} {
		status, text := b.post(c.path, body, "Authorization", "", c.header, c.value)
		require.Equal(t, http.StatusOK, status, text)
	}
	for path, headers := range map[string][]string{ // a program's own key beside its session's
		"/v1/messages":         {"Authorization", "Bearer of its own", "X-Api-Key", testKey},
		"/v1/chat/completions": {"X-Api-Key", "of its own", "X-Goog-Api-Key", "another"},
	} {
		status, text := b.post(path, body, headers...)
		require.Equal(t, http.StatusOK, status, text)
	}
	status, text := b.post("/v1/chat/completions", body, "Authorization", "Bearer other", "X-Api-Key", "none")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, "not that of a session")
	status, text = b.post("/v1/chat/completions", body, "Authorization", "Bearer other")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, "not that of a session")
	status, text = b.post("/v1/messages", body, "Authorization", "")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, `"type":"error"`)
	require.Contains(t, text, "the API key is missing")
	b.session.Finish()
	status, text = b.post("/v1/chat/completions", body)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, "the session of this key is over: train-0-0-0")
}

// What an agent asks of a gateway that is closed it may ask again: its session goes on where the next process opens it.
func TestAClosedGatewayAsksForAnotherTry(t *testing.T) {
	b := newBench(t, byRound("hello"))
	b.gate.Close()
	for _, key := range []string{testKey, "of a session that was not open yet"} {
		status, text := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, "Authorization", "Bearer "+key)
		require.Equal(t, http.StatusServiceUnavailable, status, text)
		require.Contains(t, text, "try again later")
	}
}

// A session that ends twice takes nothing from the one that has its key since.
func TestAKeyOfASessionThatBeginsAnew(t *testing.T) {
	b := newBench(t, byRound("hello"))
	b.session.Finish()
	_, err := b.gate.Open(gateway.SessionOptions{Name: b.told.ID, Key: testKey})
	require.NoError(t, err)
	b.session.End()
	b.chat([]map[string]any{user("x")})
}

// Who sends the same again before the reply was read gets that reply; who has read it gets another one, unless the request is marked.
func TestRetries(t *testing.T) {
	b := newBench(t, byRound("one", "two", "three"))
	body := `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	_, first := b.post("/v1/chat/completions", body)
	_, again := b.post("/v1/chat/completions", body, "X-Stainless-Retry-Count", "1")
	require.Equal(t, first, again)
	_, other := b.post("/v1/chat/completions", `{"messages": [{"content":"x", "role":"user"}], "model":"m"}`)
	require.Contains(t, other, "two")
	require.Len(t, b.told.Turns, 2)
	require.Equal(t, 2, b.session.Calls())
}

// A client that goes away while its reply is sampled gets it when it asks again, and nothing is sampled twice.
func TestACallOutlivesItsClient(t *testing.T) {
	let, asked := make(chan struct{}), make(chan struct{}, 10)
	b := newBench(t, func(engines.Request) (engines.Completion, error) {
		asked <- struct{}{}
		<-let
		return rollouttest.Say("late")
	})
	left := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b.gate.ServeHTTP(w, q)
		left <- struct{}{}
	}))
	t.Cleanup(server.Close)
	body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+testKey)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if reply, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, reply.Body)
			reply.Body.Close()
		}
	}()
	<-asked
	cancel()
	<-gone
	select { // the server finds out by itself
	case <-left:
	case <-time.After(time.Minute):
		t.Fatal("the call does not end with its client")
	}
	close(let)
	status, text := b.post("/v1/chat/completions", strings.Replace(body, `"stream":true,`, "", 1)) // as Claude Code does
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "late")
	require.Len(t, b.told.Turns, 1)
}

// A stream is kept alive while the reply is sampled, and is the reply.
func TestAStreamIsKeptAlive(t *testing.T) {
	b := newBench(t, func(engines.Request) (engines.Completion, error) {
		time.Sleep(100 * time.Millisecond)
		return rollouttest.Say("there")
	})
	status, text := b.post("/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, http.StatusOK, status)
	require.Greater(t, strings.Count(text, "\n: "), 1, text)
	require.Contains(t, text, `"there"`)
	require.True(t, strings.HasSuffix(text, "data: [DONE]\n\n"), text)
}

// An update of the weights pauses a call, whose stream is kept alive meanwhile; its reply is the new version's.
func TestAnUpdatePausesCalls(t *testing.T) {
	var engine engines.Engine
	b := newBench(t, byRound("after"), func(o *gateway.Options, _ *gateway.SessionOptions) { engine = o.Engine })
	begun, let, updated := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		updated <- engine.Update(t.Context(), engines.Weights{Version: 8, Apply: func(context.Context) error {
			close(begun)
			<-let
			return nil
		}})
	}()
	<-begun
	r, err := http.NewRequest(http.MethodPost, b.url+"/v1/messages", strings.NewReader(`{"stream":true,"max_tokens":50,"messages":[{"role":"user","content":"x"}]}`))
	require.NoError(t, err)
	r.Header.Set("X-Api-Key", testKey)
	reply, err := http.DefaultClient.Do(r) // it has its status while the engine stands still
	require.NoError(t, err)
	defer reply.Body.Close()
	pings := bufio.NewReader(reply.Body)
	for n := 0; n < 3; {
		line, err := pings.ReadString('\n')
		require.NoError(t, err)
		require.NotContains(t, line, "after")
		if line == "event: ping\n" {
			n++
		}
	}
	close(let)
	require.NoError(t, <-updated)
	rest, err := io.ReadAll(pings)
	require.NoError(t, err)
	require.Contains(t, string(rest), `"after"`)
	require.True(t, strings.HasSuffix(string(rest), "data: {\"type\":\"message_stop\"}\n\n"), string(rest))
	s := b.told.Samples[0]
	require.Equal(t, int32(8), s.PolicyVersion[s.Len()-1])
}

// A budget that is spent is said in a reply, for which nothing is sampled.
func TestBudget(t *testing.T) {
	b := newBench(t, byRound("a", "b", "c"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Budget.Calls = 2 })
	for range 2 {
		b.chat([]map[string]any{user("x")})
	}
	for range 2 {
		m := b.chat([]map[string]any{user("x")})
		require.Equal(t, "The budget of this session is spent: 2 calls. Stop here.", m["content"])
	}
	require.Len(t, b.told.Turns, 2)
	require.Equal(t, gateway.Outcome{Calls: 2, Refused: 2}, b.session.Finish())
	b.check()
}

// A session's time is a budget too.
func TestTheTimeOfASession(t *testing.T) {
	now, mu := time.Unix(1000, 0), sync.Mutex{}
	b := newBench(t, byRound("a"), func(o *gateway.Options, s *gateway.SessionOptions) {
		s.Budget.Until = now.Add(time.Minute)
		o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	b.chat([]map[string]any{user("x")})
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	require.Equal(t, "The budget of this session is spent: its time. Stop here.", b.chat([]map[string]any{user("x")})["content"])
	status, text := b.post("/v1/messages", `{"max_tokens":5,"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `"stop_reason":"end_turn"`)
	require.Contains(t, text, "its time. Stop here.")
	require.Len(t, b.told.Turns, 1)
	require.Equal(t, gateway.Outcome{Calls: 1, Refused: 2}, b.session.Finish())
}

// A session's time may begin with its agent's first call: until then it waits for an agent.
func TestTheTimeOfASessionThatWaits(t *testing.T) {
	now, mu := time.Unix(1000, 0), sync.Mutex{}
	wait := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	b := newBench(t, byRound("a"), func(o *gateway.Options, s *gateway.SessionOptions) {
		s.Budget.Time = time.Minute
		o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	wait(time.Hour)
	for _, want := range []string{"a", "a", "The budget of this session is spent: its time. Stop here."} {
		require.Equal(t, want, b.chat([]map[string]any{user("x")})["content"])
		wait(30 * time.Second)
	}
}

// A stream that begins with the reply begins with its usage, where the dialect has it there.
func TestAStreamBeginsWithItsUsage(t *testing.T) {
	b := newBench(t, byRound("a"))
	body := `{"stream":true,"max_tokens":5,"messages":[{"role":"user","content":"x"}]}`
	_, count := b.post("/v1/messages/count_tokens", body)
	var n struct {
		Tokens int `json:"input_tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(count), &n))
	require.Positive(t, n.Tokens)
	_, text := b.post("/v1/messages", body)
	first, _, _ := strings.Cut(text, "\n\n")
	require.Contains(t, first, fmt.Sprintf(`"input_tokens":%d,`, n.Tokens))
	require.Contains(t, first, `"output_tokens":0`)
	require.Len(t, b.told.Turns, 1)
}

// A reply that was begun for the policy, which the policy would not go on with, is refused. Its tokens can be counted.
func TestABegunReplyIsRefused(t *testing.T) {
	b := newBench(t, byRound("391"))
	const body = `{"max_tokens":5,"messages":[{"role":"user","content":"17*23?"},{"role":"assistant","content":"{\"answer\": "}]}`
	status, text := b.post("/v1/messages", body)
	require.Equal(t, http.StatusBadRequest, status, text)
	require.Contains(t, text, "This model does not support assistant message prefill. The conversation must end with a user message.")
	status, text = b.post("/v1/messages/count_tokens", body)
	require.Equal(t, http.StatusOK, status, text)
	status, text = b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"17*23?"},{"role":"assistant","content":"It is"}],"continue_final_message":true}`)
	require.Equal(t, http.StatusBadRequest, status, text)
	require.Contains(t, text, "continue_final_message is not supported")
	require.Empty(t, b.told.Turns)
}

// Parameters that are null, as some clients write those of a tool without any, are none in every format.
func TestAToolWhoseParametersAreNull(t *testing.T) {
	for _, format := range []string{"hermes", "qwen3_coder", "llama3_json", "mistral", "tags", "react"} {
		b := newBench(t, byRound("ok"), func(o *gateway.Options, _ *gateway.SessionOptions) {
			o.Format = func(specs []tools.Spec) (agents.Format, error) {
				return agents.NewFormat(format, specs, agents.FormatOptions{})
			}
		})
		b.chat([]map[string]any{user("x")}, "tools", json.RawMessage(`[{"type":"function","function":{"name":"f","parameters":null}}]`))
	}
}

// The text of a completion is what was sampled, its thought with it, so that a client goes on after prompt and text. The trajectory's answer is what comes
// behind the thought.
func TestACompletionKeepsItsThought(t *testing.T) {
	for name, c := range map[string]struct {
		prompt, more string
		say          func(string) (engines.Completion, error)
		says         string
		text, finish string
		answer       string
	}{
		"a thought that the prompt opened": {"think! <think>", "", rollouttest.Say, "hm</think>so", "hm</think>so", "stop", "so"},
		"cut in its thought":               {"think! <think>\n", "", rollouttest.SayCut, "hm, and", "hm, and", "length", ""},
		"nothing behind the thought":       {"think! <think>", "", rollouttest.Say, "hm</think>", "hm</think>", "stop", ""},
		"a thought of its own":             {"go", "", rollouttest.Say, "<think>\nhm\n</think>\n\nso", "<think>\nhm\n</think>\n\nso", "stop", "so"},
		"up to a stop string":              {"think! <think>", `,"stop":["END"]`, rollouttest.Say, "hm</think>\n\nso END of it", "hm</think>\n\nso ", "stop", "so"},
		"no thought":                       {"go", "", rollouttest.Say, "on", "on", "stop", "on"},
	} {
		for _, streamed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %v", name, streamed), func(t *testing.T) {
				said := []func(string) (engines.Completion, error){c.say, rollouttest.Say}
				b := newBench(t, func(engines.Request) (engines.Completion, error) {
					say := said[0]
					said = said[1:]
					return say(c.says)
				})
				ask := func(prompt string) (text, finish string) {
					status, body := b.post("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":100,"stream":%v%s}`, prompt, streamed, c.more))
					require.Equal(t, http.StatusOK, status, body)
					for line := range strings.Lines(body) {
						line = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
						if !strings.HasPrefix(line, "{") {
							continue
						}
						var chunk struct {
							Choices []struct {
								Text   string
								Finish string `json:"finish_reason"`
							}
						}
						require.NoError(t, json.Unmarshal([]byte(line), &chunk), line)
						text, finish = text+chunk.Choices[0].Text, finish+chunk.Choices[0].Finish
					}
					return text, finish
				}
				text, finish := ask(c.prompt)
				require.Equal(t, c.text, text)
				require.Equal(t, c.finish, finish)
				require.Equal(t, c.answer, b.told.Turns[0].FinalAnswer)
				require.Equal(t, c.answer != "", b.told.Turns[0].AnsweredThisTurn)
				if c.finish == "length" { // nothing but the text was sampled
					ask(c.prompt + text + "</think>")
					require.Len(t, b.told.Samples, 1, "what goes on after prompt and text is one sample with them")
				}
			})
		}
	}
}

// A tool of the agent whose schema this program cannot read whole costs no call, in whatever format the model writes: its text, and those of the tools beside
// it, go to the model as they are.
func TestSchemasThatAreNotKnown(t *testing.T) {
	for _, format := range []string{"hermes", "llama3_json", "mistral", "qwen3_coder"} {
		for _, schema := range []string{`{"type":"object","properties":{"at":{"type":"array","items":[{"type":"number"},{"type":"number"}]}}}`, `{"type":"object","properties":{"x":true}}`, `null`} {
			t.Run(format+" "+schema, func(t *testing.T) {
				b := newBench(t, byRound("done"), func(o *gateway.Options, _ *gateway.SessionOptions) {
					o.Format = func(specs []tools.Spec) (agents.Format, error) {
						return agents.NewFormat(format, specs, agents.FormatOptions{})
					}
				})
				odd := `[{"type":"function","function":{"name":"odd","parameters":` + schema + `}},` + string(calculator[1:])
				require.Equal(t, "done", b.chat([]map[string]any{user("x")}, "tools", json.RawMessage(odd))["content"])
			})
		}
	}
}

// A conversation that is too long is refused in the words that clients know.
func TestOverflow(t *testing.T) {
	b := newBench(t, byRound("a"), func(o *gateway.Options, _ *gateway.SessionOptions) { o.MaxTotal = 100 })
	body := fmt.Sprintf(`{"max_tokens":1000000,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", 200))
	status, text := b.post("/v1/chat/completions", body)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "maximum context length is 100 tokens")
	require.Contains(t, text, "context_length_exceeded")
	_, text = b.post("/v1/messages", body)
	require.Contains(t, text, "prompt is too long")
	b.chat([]map[string]any{user("short")}, "max_tokens", 1000000)
	require.Len(t, b.told.Turns, 1)
}

// A call whose turn is being stored when the session ends is stored: the agent's end is no failure of the store.
func TestAnEndWhileATurnIsStored(t *testing.T) {
	storing, end := make(chan struct{}), make(chan struct{})
	b := newBench(t, byRound("a"), func(_ *gateway.Options, o *gateway.SessionOptions) {
		o.Record = func(ctx context.Context, _ *trajectory.Trajectory) error {
			close(storing)
			<-end
			return ctx.Err()
		}
	})
	go b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
	<-storing
	time.AfterFunc(20*time.Millisecond, func() { close(end) })
	require.NoError(t, b.session.Finish().Err)
	require.Len(t, b.told.Turns, 1)
}

// A form that an agent asks for is not held, which the turn says for every dialect, and a person is told once.
func TestFormsAreRecordedAsNotApplied(t *testing.T) {
	var warned []string
	b := newBench(t, byRound("free text"), func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Warn = func(text string) { warned = append(warned, text) }
	})
	tools := `,"tools":` + string(calculator)
	const schema = `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`
	for i, c := range []struct {
		path, body string
		want       []string
	}{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"0"}]}`, nil},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"1"}],"response_format":{"type":"text"},"structured_outputs":null}`, nil},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"2"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + schema + `}}}`, []string{"response_format"}},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"3"}],"tool_choice":"required"` + tools + `}`, []string{"tool_choice"}},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"4"}],"tool_choice":{"type":"function","function":{"name":"calculator"}},"response_format":{"type":"json_object"}` + tools + `}`, []string{"response_format", "tool_choice"}},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"5"}],"structured_outputs":{"choice":["a"]}}`, []string{"structured_outputs"}},
		{"/v1/responses", `{"input":"6","text":{"format":{"type":"json_schema","name":"n","schema":` + schema + `}}}`, []string{"response_format"}},
		{"/v1/messages", `{"max_tokens":20,"messages":[{"role":"user","content":"7"}],"tools":[{"name":"x","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}}`, []string{"tool_choice"}},
	} {
		status, text := b.post(c.path, c.body)
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, "free text")
		require.Len(t, b.told.Turns, i+1)
		require.Equal(t, c.want, b.told.Turns[i].Incoming.Unapplied, c.body)
	}
	require.Len(t, warned, 1)
	require.Contains(t, warned[0], "asks for response_format, which is not applied: the policy samples freely")
}

// Variables of the chat template that an agent sets, such as that the policy should not think, are not applied, which the turn and the reply say for every
// dialect. A person is told once, also where the first call that asked for a form was told before.
func TestTemplateVariablesAreRecordedAsNotApplied(t *testing.T) {
	var warned []string
	b := newBench(t, byRound("free text"), func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Warn = func(text string) { warned = append(warned, text) }
	})
	for i, c := range []struct {
		path, body string
		want       []string
	}{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"0"}],"response_format":{"type":"json_object"}}`, []string{"response_format"}},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"1"}],"chat_template_kwargs":{"enable_thinking":false}}`, []string{"chat_template_kwargs"}},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"2"}],"chat_template_kwargs":{"enable_thinking":false},"stream":true}`, []string{"chat_template_kwargs"}},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"3"}],"chat_template_kwargs":{"enable_thinking":false},"response_format":{"type":"json_object"}}`, []string{"response_format", "chat_template_kwargs"}},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"4"}],"chat_template_kwargs":{}}`, nil},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"5"}],"chat_template_kwargs":null}`, nil},
		{"/v1/responses", `{"input":"6","chat_template_kwargs":{"enable_thinking":false}}`, []string{"chat_template_kwargs"}},
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer "+testKey)
		out := httptest.NewRecorder()
		b.gate.ServeHTTP(out, r)
		require.Equal(t, http.StatusOK, out.Code, out.Body)
		require.Equal(t, strings.Join(c.want, ", "), out.Header().Get("X-Agentfly-Unapplied"))
		require.Len(t, b.told.Turns, i+1)
		require.Equal(t, c.want, b.told.Turns[i].Incoming.Unapplied, c.body)
	}
	require.Len(t, warned, 2)
	require.Contains(t, warned[1], "asks for chat_template_kwargs, which is not applied: the job's chat template")
}
