package export

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// receiver is a collector that keeps the spans, by the types of the protocol.
type receiver struct {
	mu       sync.Mutex
	requests int
	headers  http.Header
	spans    []*tracev1.Span
	answer   func(request int, w http.ResponseWriter) // nil: it takes all
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.headers = r.Header
	body, _ := io.ReadAll(r.Body)
	var in tracev1.TracesData
	if r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if c.answer != nil {
		if c.answer(c.requests, w); w.Header().Get("Refused") != "" {
			return
		}
	}
	for _, x := range in.ResourceSpans {
		for _, y := range x.ScopeSpans {
			c.spans = append(c.spans, y.Spans...)
		}
	}
}

func valuesOf(s *tracev1.Span) map[string]any {
	out := map[string]any{}
	for _, kv := range s.Attributes {
		switch v := kv.Value.Value; {
		case kv.Value.GetArrayValue() != nil:
			out[kv.Key] = kv.Value.GetArrayValue().Values[0].GetStringValue()
		default:
			_ = v
			for _, x := range []any{kv.Value.GetStringValue(), kv.Value.GetIntValue(), kv.Value.GetDoubleValue()} {
				if x != "" && x != int64(0) && x != 0.0 {
					out[kv.Key] = x
				}
			}
		}
	}
	return out
}

func traced(n int, large string) Run {
	r := sample()
	r.Model = "tiny"
	began := time.Unix(1_700_000_100, 0)
	r.Trajectories = func(_ context.Context, f func(store.Record) error) error {
		for i := range n {
			t := &trajectory.Trajectory{
				ID: fmt.Sprintf("train-1-0-%d", i), TaskID: "k", Index: i, Step: 1, Reward: 0.5, RewardParts: map[string]float64{"answer": 0.5, "odd": math.NaN()},
				StopReason: trajectory.StopAnswer, Started: began, Seconds: 3,
				Samples: []*trajectory.Sample{{PolicyVersion: []int32{-1, -1, 7, 7, -1, 8}}},
				Turns: []trajectory.Turn{
					{CompletionStart: 2, CompletionEnd: 4, Completion: "call \xff" + large, FinishReason: trajectory.FinishStop, EngineSeconds: 1, ToolSeconds: 0.5, Seed: 1 << 63, Results: []trajectory.ToolResult{
						{Call: trajectory.ToolCall{ID: "c1", Name: "calc", Arguments: []byte(`{"x": 1}`)}, Observation: "3\xff", Duration: 500 * time.Millisecond},
						{Call: trajectory.ToolCall{ID: "c2", Name: "calc"}, Failed: true, Cause: trajectory.CauseBroken, Duration: 250 * time.Millisecond},
					}},
					{CompletionStart: 5, CompletionEnd: 6, Completion: "3", FinishReason: trajectory.FinishLength, EngineSeconds: 0.25},
				},
			}
			if i == 1 {
				t.Fail(trajectory.OriginTool, "the tool is gone")
			}
			if i == 2 {
				t.Forked = 1
				t.Turns[1].CompletionEnd, t.Turns[1].Begun = 8, []trajectory.Begun{{Shared: "train-1-0-0:1", End: 2}}
			}
			prompt := []trajectory.Message{{Role: "user", Content: []trajectory.Part{{Type: "text", Text: "how many?"}}}}
			if err := f(store.Record{Phase: "train", Task: trajectory.Task{ID: "k", Prompt: prompt}, Trajectory: t}); err != nil {
				return err
			}
		}
		return nil
	}
	return r
}

// Every trajectory is a trace: its turns and calls are spans in it, with their numbers, times and faults.
func TestTrajectoriesAsSpans(t *testing.T) {
	c := &receiver{}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv(otlpHeaders, "x-key=a%20b, other=c")
	sent, err := sendOTLP(t.Context(), server.URL, traced(3, ""))
	require.NoError(t, err)
	require.Equal(t, 5+5+2, sent, "of the third the second turn alone is its own")
	require.Len(t, c.spans, sent)
	require.Equal(t, "a b", c.headers.Get("x-key"))
	require.Equal(t, "c", c.headers.Get("other"))
	byID, traces := map[string]*tracev1.Span{}, map[string]int{}
	for _, s := range c.spans {
		require.Len(t, s.TraceId, 16)
		require.Len(t, s.SpanId, 8)
		key := string(s.TraceId) + string(s.SpanId)
		require.Nil(t, byID[key], "ids are unique")
		byID[key] = s
		traces[string(s.TraceId)]++
	}
	require.Len(t, traces, 3)
	at := func(seconds float64) uint64 { return uint64(time.Unix(1_700_000_100, int64(seconds*1e9)).UnixNano()) }
	root, first, call, late, second := c.spans[0], c.spans[1], c.spans[2], c.spans[3], c.spans[4]
	require.Empty(t, root.ParentSpanId)
	for _, s := range []*tracev1.Span{first, call, late, second} {
		require.Equal(t, root.SpanId, s.ParentSpanId)
	}
	require.Equal(t, "invoke_agent calc", root.Name)
	require.Equal(t, map[string]any{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "calc", "gen_ai.provider.name": "agentfly", "gen_ai.conversation.id": "train-1-0-0", "gen_ai.request.model": "tiny",
		"agentfly.phase": "train", "agentfly.step": int64(1), "agentfly.task": "k", "agentfly.reward": 0.5, "agentfly.reward.answer": 0.5, "agentfly.stop_reason": "answer",
	}, valuesOf(root), "what is empty, 0 or not finite is left out, and so is content")
	require.Equal(t, [2]uint64{at(0), at(3)}, [2]uint64{root.StartTimeUnixNano, root.EndTimeUnixNano})
	require.Equal(t, "chat tiny", first.Name)
	got := valuesOf(first)
	require.Equal(t, int64(2), got["gen_ai.usage.input_tokens"])
	require.Equal(t, int64(2), got["gen_ai.usage.output_tokens"])
	require.Equal(t, "stop", got["gen_ai.response.finish_reasons"])
	require.Equal(t, int64(7), got["agentfly.policy_version"])
	require.Equal(t, int64(math.MinInt64), got["gen_ai.request.seed"])
	require.Equal(t, [2]uint64{at(0), at(1)}, [2]uint64{first.StartTimeUnixNano, first.EndTimeUnixNano})
	require.Equal(t, "execute_tool calc", call.Name)
	require.Equal(t, [2]uint64{at(1), at(1.5)}, [2]uint64{call.StartTimeUnixNano, call.EndTimeUnixNano})
	require.Equal(t, "c2", valuesOf(late)["gen_ai.tool.call.id"])
	require.Equal(t, string(trajectory.CauseBroken), valuesOf(late)["error.type"])
	require.Equal(t, tracev1.Status_STATUS_CODE_ERROR, late.Status.Code)
	require.Equal(t, [2]uint64{at(1.5), at(1.75)}, [2]uint64{second.StartTimeUnixNano, second.EndTimeUnixNano})
	require.Equal(t, int64(8), valuesOf(second)["agentfly.policy_version"])
	failed := c.spans[5]
	require.Equal(t, "the tool is gone", failed.Status.Message)
	require.Equal(t, string(trajectory.OriginTool), valuesOf(failed)["error.type"])

	within := valuesOf(c.spans[11])
	require.Equal(t, [2]any{int64(5 + 2), int64(3 - 2)}, [2]any{within["gen_ai.usage.input_tokens"], within["gen_ai.usage.output_tokens"]}, "what another one sampled is not its own")

	again := &receiver{}
	other := httptest.NewServer(again)
	defer other.Close()
	_, err = sendOTLP(t.Context(), other.URL+"/other/", traced(3, ""))
	require.ErrorContains(t, err, "is "+other.URL+"/other/v1/traces its address for traces?")
	_, err = sendOTLP(t.Context(), other.URL+"/v1/traces/", traced(3, ""))
	require.NoError(t, err)
	for i, s := range again.spans {
		require.True(t, proto.Equal(c.spans[i], s), "the same run is the same spans")
	}
}

// Texts of the conversation are sent where the environment variable of OpenTelemetry asks for it, as UTF-8.
func TestSpansWithContent(t *testing.T) {
	t.Setenv(otlpContent, "true")
	c := &receiver{}
	server := httptest.NewServer(c)
	defer server.Close()
	_, err := sendOTLP(t.Context(), server.URL, traced(1, ""))
	require.NoError(t, err)
	require.JSONEq(t, `[{"role": "user", "parts": [{"type": "text", "content": "how many?"}]}]`, valuesOf(c.spans[0])["gen_ai.input.messages"].(string))
	require.JSONEq(t, `[{"role": "assistant", "parts": [{"type": "text", "content": "call �"}], "finish_reason": "stop"}]`, valuesOf(c.spans[1])["gen_ai.output.messages"].(string))
	require.Equal(t, `{"x": 1}`, valuesOf(c.spans[2])["gen_ai.tool.call.arguments"])
	require.Equal(t, "3�", valuesOf(c.spans[2])["gen_ai.tool.call.result"])
}

// What a collector took is not sent again while the run trains; what it did not take is.
func TestSpansAreSentOnce(t *testing.T) {
	t.Setenv(otlpContent, "true")
	large := strings.Repeat("x", 300_000)
	c := &receiver{answer: func(request int, w http.ResponseWriter) {
		if request == 2 {
			w.Header().Set("Refused", "1")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("no\x1b room"))
		}
	}}
	server := httptest.NewServer(c)
	defer server.Close()
	r := traced(10, large)
	r.Sent = Sent{}
	sent, err := sendOTLP(t.Context(), server.URL, r)
	require.ErrorContains(t, err, `the collector answered 400 Bad Request: "no\x1b room"`)
	require.NotZero(t, sent)
	require.Len(t, c.spans, sent)
	sent2, err := sendOTLP(t.Context(), server.URL, r)
	require.NoError(t, err)
	require.Equal(t, 10*5-3, sent+sent2)
	seen := map[string]bool{}
	for _, s := range c.spans {
		key := string(s.TraceId) + string(s.SpanId)
		require.False(t, seen[key])
		seen[key] = true
	}
	require.Greater(t, c.requests, 3, "a request is bounded")
	sent3, err := sendOTLP(t.Context(), server.URL, r)
	require.NoError(t, err)
	require.Zero(t, sent3)
}

// What a collector refuses for good is told and not sent again, and keeps nothing behind it back: a part of a request, or a trajectory that is too large.
func TestARefusalKeepsNothingBack(t *testing.T) {
	t.Setenv(otlpContent, "true")
	large := strings.Repeat("x", 300_000)
	for name, c := range map[string]struct {
		refuse func(w http.ResponseWriter, spans, first int) // a request with so many spans, so many of them of the first trajectory
		want   string
	}{
		"a part": {func(w http.ResponseWriter, _, first int) {
			if first > 0 {
				_, _ = w.Write(partialSuccess(uint64(first), "quota"))
			}
		}, "the collector refused 5 of 22 spans: quota"},
		"too large": {func(w http.ResponseWriter, spans, first int) {
			if first > 0 || spans > 10 {
				w.Header().Set("Refused", "1")
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		}, "as too large (413); raise its limit"},
	} {
		t.Run(name, func(t *testing.T) {
			r := traced(10, large)
			r.Sent = Sent{}
			var first []byte
			require.NoError(t, r.Trajectories(t.Context(), func(record store.Record) error {
				if first == nil {
					first = traceOf(record, r, false)[0].TraceId
				}
				return nil
			}))
			arrived := map[string]int{} // spans by trace, without those that were refused
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				requests++
				body, _ := io.ReadAll(q.Body)
				var in tracev1.TracesData
				if proto.Unmarshal(body, &in) != nil {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				spans := in.ResourceSpans[0].ScopeSpans[0].Spans
				of := 0
				for _, s := range spans {
					if string(s.TraceId) == string(first) {
						of++
					}
				}
				if c.refuse(w, len(spans), of); w.Header().Get("Refused") != "" {
					return
				}
				for _, s := range spans {
					if string(s.TraceId) != string(first) {
						arrived[string(s.TraceId)]++
					}
				}
			}))
			defer server.Close()
			sent, err := sendOTLP(t.Context(), server.URL, r)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, 9*5-3, sent)
			require.Len(t, arrived, 9)
			for _, n := range arrived {
				require.LessOrEqual(t, n, 5, "each once")
			}
			before := requests
			sent, err = sendOTLP(t.Context(), server.URL, r)
			require.NoError(t, err)
			require.Zero(t, sent)
			require.Equal(t, before, requests)
		})
	}
}

// Refusals of many requests are told in one line.
func TestRefusalsAreToldInALine(t *testing.T) {
	t.Setenv(otlpContent, "true")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(partialSuccess(1, "quota")) }))
	defer server.Close()
	sent, err := sendOTLP(t.Context(), server.URL, traced(10, strings.Repeat("x", 300_000)))
	require.EqualError(t, err, "the collector refused 1 of 22 spans: quota (and 2 requests more)")
	require.Equal(t, 10*5-3-3, sent)
}

// A collector that cannot take a request now is not sent the same one again at once.
func TestAFailedRequestIsSentOnce(t *testing.T) {
	c := &receiver{answer: func(_ int, w http.ResponseWriter) {
		w.Header().Set("Refused", "1")
		w.WriteHeader(http.StatusBadRequest)
	}}
	server := httptest.NewServer(c)
	defer server.Close()
	r := traced(5, strings.Repeat("x", 300_000))
	t.Setenv(otlpContent, "true")
	sent, err := sendOTLP(t.Context(), server.URL, r)
	require.ErrorContains(t, err, "400 Bad Request")
	require.Zero(t, sent)
	require.Equal(t, 1, c.requests)
}

// Only a collector that knows no such path is asked whether its address is right.
func TestTheAddressIsDoubtedWhereThePathIsUnknown(t *testing.T) {
	for status, doubted := range map[int]bool{
		http.StatusNotFound: true, http.StatusMethodNotAllowed: true,
		http.StatusBadRequest: false, http.StatusUnauthorized: false, http.StatusTooManyRequests: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600") // later than an answer is waited for
			w.WriteHeader(status)
		}))
		_, err := sendOTLP(t.Context(), server.URL, traced(1, ""))
		server.Close()
		want := fmt.Sprintf(`the collector answered %d %s: ""`, status, http.StatusText(status))
		if doubted {
			want += "; is " + server.URL + otlpPath + " its address for traces?"
		}
		require.EqualError(t, err, want)
	}
}

// partialSuccess is the answer of a collector that refused some spans.
func partialSuccess(refused uint64, why string) []byte {
	partial := protowire.AppendTag(nil, 1, protowire.VarintType)
	partial = protowire.AppendVarint(partial, refused)
	partial = protowire.AppendTag(partial, 2, protowire.BytesType)
	partial = protowire.AppendString(partial, why)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
}

// A collector that is busy is asked again; what it refuses is told.
func TestCollectorsThatRefuse(t *testing.T) {
	busy := &receiver{answer: func(request int, w http.ResponseWriter) {
		if request == 1 {
			w.Header().Set("Refused", "1")
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}}
	server := httptest.NewServer(busy)
	defer server.Close()
	sent, err := sendOTLP(t.Context(), server.URL, traced(1, ""))
	require.NoError(t, err)
	require.Equal(t, 5, sent)
	require.Equal(t, 2, busy.requests)

	answer := partialSuccess(2, "quota")
	picky := httptest.NewServer(&receiver{answer: func(_ int, w http.ResponseWriter) { _, _ = w.Write(answer) }})
	defer picky.Close()
	_, err = sendOTLP(t.Context(), picky.URL, traced(1, ""))
	require.EqualError(t, err, "the collector refused 2 of 5 spans: quota")

	for _, to := range []string{"", "collector:4318", "ftp://x", "http://", "http://user:secret@"} {
		_, err := sendOTLP(t.Context(), to, traced(1, ""))
		require.ErrorContains(t, err, "no address of an OpenTelemetry collector", to)
		require.NotContains(t, err.Error(), "secret")
	}
	t.Setenv(otlpHeaders, "nothing")
	_, err = sendOTLP(t.Context(), server.URL, traced(1, ""))
	require.ErrorContains(t, err, otlpHeaders+" is not key=value")
}

func FuzzRejectedSpans(f *testing.F) {
	f.Add([]byte("\x0a\x04\x08\x02\x12\x00"))
	f.Fuzz(func(_ *testing.T, answer []byte) { rejectedSpans(answer) })
}
