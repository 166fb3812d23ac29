package dialects

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// stream tells a whole reply as a stream.
func stream(t testing.TB, d Dialect, q *Request, r Reply) string {
	rec := httptest.NewRecorder()
	w := d.Stream(rec, q, Reply{ID: r.ID})
	require.NoError(t, w.Piece(Piece{Reasoning: r.Reasoning}))
	require.NoError(t, w.Piece(Piece{Content: r.Content}))
	for i := range r.Calls {
		require.NoError(t, w.Piece(Piece{Call: &r.Calls[i]}))
	}
	require.NoError(t, w.End(Reply{Finish: r.Finish, Stop: r.Stop, Usage: r.Usage}))
	return rec.Body.String()
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		d      Dialect
		err    error
		status int
		body   string
		header string
	}{
		{
			Chat(), Overflow(100, 120), 400,
			`{"error":{"message":"This model's maximum context length is 100 tokens. However, your messages resulted in 120 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`, "",
		},
		{Messages(), Overflow(100, 120), 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 120 tokens > 100 maximum"}}`, ""},
		{Messages(), &Error{Status: 400, Code: CodeOverflow, Message: "m"}, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: m"}}`, ""},
		{
			Messages(), &Error{Status: 400, Code: CodeThreads, Message: "m"}, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"m","details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}}}`, "",
		},
		{Messages(), &Error{Status: 529, Message: "m"}, 529, `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, ""},
		{Responses(), &Error{Status: 429, Message: "m"}, 429, `{"error":{"message":"m","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`, "1"},
		{Chat(), &Error{Status: 401, Message: "m"}, 401, `{"error":{"message":"m","type":"authentication_error","param":null,"code":"invalid_api_key"}}`, ""},
		{Completions(), badf("prompt", "m"), 400, `{"error":{"message":"m","type":"invalid_request_error","param":"prompt","code":null}}`, ""},
		{Chat(), errors.New("the engine broke"), 500, `{"error":{"message":"the engine broke","type":"server_error","param":null,"code":null}}`, ""},
		{Messages(), errors.New("the engine broke"), 500, `{"type":"error","error":{"type":"api_error","message":"the engine broke"}}`, ""},
	} {
		for _, how := range []string{"answer", "stream that did not begin"} {
			rec := httptest.NewRecorder()
			if how == "answer" {
				c.d.Fail(rec, c.err)
			} else {
				c.d.Stream(rec, &Request{}, Reply{}).Fail(c.err)
			}
			require.Equal(t, c.status, rec.Code)
			require.JSONEq(t, c.body, rec.Body.String())
			require.Equal(t, c.header, rec.Header().Get("Retry-After"))
			require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
		}
	}
}

// TestErrorInStream: once the stream has begun, an error is an event in the dialect's form; also where nothing but a ping was sent.
func TestErrorInStream(t *testing.T) {
	for _, d := range all() {
		for _, p := range []Piece{{}, {Reasoning: "r"}, {Content: "c"}} {
			rec := httptest.NewRecorder()
			w := d.Stream(rec, &Request{}, Reply{ID: "1"})
			require.NoError(t, w.Ping())
			require.NoError(t, w.Piece(p))
			w.Fail(errors.New("the engine broke"))
			require.Equal(t, 200, rec.Code)
			require.Equal(t, "the engine broke", hear(t, d, rec.Body.String(), true).Error, d.Name())
		}
	}
}

// A stream of Responses that fails before its first piece begins as every one does: OpenAI's client takes no response.failed without a response.created.
func TestAFailureBehindAKeepAlive(t *testing.T) {
	rec := httptest.NewRecorder()
	w := Responses().Stream(rec, &Request{}, Reply{ID: "1"})
	require.NoError(t, w.Ping())
	w.Fail(errors.New("the engine broke"))
	events, _ := readEvents(t, rec.Body.String())
	var got []string
	for _, e := range events {
		var v struct {
			Serial int `json:"sequence_number"`
		}
		require.NoError(t, json.Unmarshal([]byte(e.data), &v))
		got = append(got, fmt.Sprint(v.Serial, " ", e.name))
	}
	require.Equal(t, []string{"0 response.created", "1 response.in_progress", "2 response.failed"}, got)
}

// TestPing: it keeps a connection alive in each dialect's form, before and between pieces.
func TestPing(t *testing.T) {
	for _, d := range all() {
		rec := httptest.NewRecorder()
		w := d.Stream(rec, &Request{}, Reply{ID: "1"})
		require.NoError(t, w.Ping())
		require.Equal(t, 200, rec.Code)
		require.True(t, rec.Flushed)
		require.NoError(t, w.Piece(Piece{Content: "c"}))
		require.NoError(t, w.Ping())
		require.NoError(t, w.End(Reply{Finish: FinishStop}))
		events, comments := readEvents(t, rec.Body.String())
		if d.Name() != "messages" {
			require.Equal(t, 2, comments)
			continue
		}
		require.Zero(t, comments)
		require.Equal(t, "message_start", events[0].name)
		require.Equal(t, sse{"ping", `{"type":"ping"}`}, events[1])
		require.Equal(t, "ping", events[4].name)
	}
}

// TestFinish holds each dialect's words.
func TestFinish(t *testing.T) {
	for _, d := range []struct {
		d    Dialect
		want [4]string
	}{
		{Chat(), [4]string{"stop", "length", "tool_calls", "stop"}},
		{Completions(), [4]string{"stop", "length", "stop", "stop"}},
		{Responses(), [4]string{"completed", "max_output_tokens", "completed", "completed"}},
		{Messages(), [4]string{"end_turn", "max_tokens", "tool_use", "end_turn"}},
	} {
		for i, f := range []Finish{FinishStop, FinishLength, FinishCalls, FinishBudget} {
			body, err := d.d.Whole(&Request{}, Reply{Finish: f})
			require.NoError(t, err)
			require.Equal(t, d.want[i], hear(t, d.d, string(body), false).Finish)
			require.Equal(t, d.want[i], hear(t, d.d, stream(t, d.d, &Request{StreamUsage: true}, Reply{Finish: f}), true).Finish)
		}
	}
	body, err := Messages().Whole(&Request{}, Reply{Finish: FinishStop, Stop: "END"})
	require.NoError(t, err)
	require.Equal(t, "stop_sequence", hear(t, Messages(), string(body), false).Finish)
}

// TestUsageIsLeftToTheClient: a chat tells usage in its stream where the client wants it.
func TestUsageIsLeftToTheClient(t *testing.T) {
	r := Reply{Usage: Usage{Prompt: 3, Completion: 4}, Finish: FinishStop}
	require.NotContains(t, stream(t, Chat(), &Request{}, r), "usage")
	require.Contains(t, stream(t, Chat(), &Request{StreamUsage: true}, r), `"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`)
}
