package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// OTLP is OpenTelemetry's protocol; trajectories are sent over HTTP as protobuf. A trajectory is a trace by the conventions for generative AI
// (OpenTelemetry semantic conventions 1.37): a span invoke_agent, in it a span chat for each turn and a span execute_tool for each call. The ids of
// traces and spans follow from the run and the trajectory, so that what is sent twice is the same span. The store keeps when a trajectory began and
// how long each of its completions and calls took, and not when each began: a turn begins where the one before it ended, and the calls of a turn
// begin together.

var otlp = Format{Name: "otlp", Description: "the trajectories as OpenTelemetry spans, to the collector that --to names", Trajectories: true, Send: sendOTLP}

const (
	otlpPath  = "/v1/traces"
	otlpBatch = 1 << 20          // bytes of a request, but for a trajectory that is larger
	otlpWait  = 30 * time.Second // for an answer
	otlpMost  = 64 << 10         // bytes of an answer that are read

	// The environment variables that every OpenTelemetry program reads.
	otlpHeaders = "OTEL_EXPORTER_OTLP_HEADERS"                         // key=value,...: sent with each request, such as a key of the service
	otlpContent = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" // true: prompts, replies, arguments and results are sent too
)

// collector is where spans are sent.
type collector struct {
	url     string
	headers map[string]string
	client  *http.Client
}

func newCollector(to string) (*collector, error) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("this is no address of an OpenTelemetry collector; write one such as http://127.0.0.1:4318") // it may hold a password
	}
	u = u.JoinPath("/") // without doubled slashes
	if u.Path = strings.TrimRight(u.Path, "/"); !strings.HasSuffix(u.Path, otlpPath) {
		u.Path += otlpPath
	}
	u.RawPath = ""
	c := &collector{url: u.String(), headers: map[string]string{}, client: &http.Client{Transport: &retry.Transport{Base: http.DefaultTransport}}}
	for pair := range strings.SplitSeq(os.Getenv(otlpHeaders), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		decoded, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !found || key == "" || err != nil {
			return nil, fmt.Errorf("the environment variable %s is not key=value,key=value", otlpHeaders)
		}
		c.headers[key] = decoded
	}
	return c, nil
}

// refusal is a collector's answer to spans that are not sent again: a request that was taken in part (OTLP forbids it), or one that is too large.
type refusal struct {
	spans int  // that were refused
	large bool // the request was
	what  string
}

func (r *refusal) Error() string { return r.what }

// send sends the spans of a run in one request. Spans that the collector refuses for good are a *refusal.
func (c *collector) send(ctx context.Context, r Run, spans []*tracev1.Span) error {
	body, err := proto.Marshal(&tracev1.TracesData{ResourceSpans: []*tracev1.ResourceSpans{{
		Resource:   &resourcev1.Resource{Attributes: attributes(map[string]any{"service.name": "agentfly", "agentfly.run": r.Name})},
		ScopeSpans: []*tracev1.ScopeSpans{{Scope: &commonv1.InstrumentationScope{Name: "github.com/agentfly/agentfly/export"}, Spans: spans}},
	}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, otlpWait)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/x-protobuf")
	for key, value := range c.headers {
		q.Header.Set(key, value)
	}
	resp, err := c.client.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, otlpMost))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusRequestEntityTooLarge {
		return &refusal{len(spans), true, fmt.Sprintf("the collector refused %d spans in a request of %d bytes as too large (413); raise its limit", len(spans), len(body))}
	}
	if resp.StatusCode/100 != 2 {
		err := fmt.Errorf("the collector answered %s: %s", wording.Clip(resp.Status, 64), wording.Clip(strconv.Quote(string(answer)), 200))
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
			return fmt.Errorf("%w; is %s its address for traces?", err, wording.Clip(q.URL.Redacted(), 200))
		}
		return err
	}
	if rejected, why := rejectedSpans(answer); rejected > 0 {
		return &refusal{int(min(rejected, int64(len(spans)))), false, fmt.Sprintf("the collector refused %d of %d spans: %s", rejected, len(spans), wording.Clip(why, 300))}
	}
	return nil
}

// rejectedSpans reads the answer of a collector that took a part (ExportTracePartialSuccess).
func rejectedSpans(answer []byte) (n int64, why string) {
	fields := func(data []byte, f func(number protowire.Number, kind protowire.Type, value []byte)) {
		for len(data) > 0 {
			number, kind, tag := protowire.ConsumeTag(data)
			if tag < 0 {
				return
			}
			size := protowire.ConsumeFieldValue(number, kind, data[tag:])
			if size < 0 {
				return
			}
			f(number, kind, data[tag:tag+size])
			data = data[tag+size:]
		}
	}
	fields(answer, func(number protowire.Number, kind protowire.Type, value []byte) {
		if number != 1 || kind != protowire.BytesType {
			return
		}
		partial, _ := protowire.ConsumeBytes(value)
		fields(partial, func(number protowire.Number, kind protowire.Type, value []byte) {
			switch {
			case number == 1 && kind == protowire.VarintType:
				v, _ := protowire.ConsumeVarint(value)
				n = int64(v)
			case number == 2 && kind == protowire.BytesType:
				text, _ := protowire.ConsumeBytes(value)
				why = string(text)
			}
		})
	})
	return n, why
}

func sendOTLP(ctx context.Context, to string, r Run) (sent int, err error) {
	c, err := newCollector(to)
	if err != nil {
		return 0, err
	}
	content, _ := strconv.ParseBool(os.Getenv(otlpContent))
	d := delivery{collector: c, run: r}
	var batch []trace // not sent yet
	size := 0
	flush := func() error {
		traces := batch
		if batch, size = nil, 0; len(traces) == 0 {
			return nil
		}
		return d.send(ctx, traces)
	}
	err = r.Trajectories(ctx, func(record store.Record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, was := r.Sent[record.Trajectory.ID]; was {
			return nil
		}
		t := trace{record.Trajectory.ID, traceOf(record, r, content)}
		for _, s := range t.spans {
			size += proto.Size(s)
		}
		if batch = append(batch, t); size < otlpBatch {
			return nil
		}
		return flush()
	})
	return d.sent, errors.Join(err, flush(), d.refused())
}

// trace is a trajectory in spans.
type trace struct {
	id    string // of the trajectory
	spans []*tracev1.Span
}

// delivery brings the traces of a run to a collector.
type delivery struct {
	collector *collector
	run       Run
	sent      int        // spans that the collector took
	refusals  []*refusal // of spans that are not sent again
}

// send sends traces in one request, or in several where that one is too large. What is refused for good is kept in refusals, and is no error: what follows is sent.
func (d *delivery) send(ctx context.Context, traces []trace) error {
	var spans []*tracev1.Span
	for _, t := range traces {
		spans = append(spans, t.spans...)
	}
	var no *refusal
	switch err := d.collector.send(ctx, d.run, spans); {
	case errors.As(err, &no) && no.large && len(traces) > 1:
		half := len(traces) / 2
		if err := d.send(ctx, traces[:half]); err != nil {
			return err
		}
		return d.send(ctx, traces[half:])
	case no != nil:
		d.refusals = append(d.refusals, no)
		d.sent -= no.spans
	case err != nil:
		return err
	}
	d.sent += len(spans)
	if d.run.Sent != nil {
		for _, t := range traces {
			d.run.Sent[t.id] = map[int]sentValue{}
		}
	}
	return nil
}

// refused says what was refused, in one line; nil: nothing.
func (d *delivery) refused() error {
	switch n := len(d.refusals); n {
	case 0:
		return nil
	case 1:
		return d.refusals[0]
	default:
		return fmt.Errorf("%w (and %d requests more)", d.refusals[0], n-1)
	}
}

// traceOf are the spans of a trajectory. Turns that it shares with the branch that it forks off are in that one's trace.
func traceOf(record store.Record, r Run, content bool) []*tracev1.Span {
	t := record.Trajectory
	trace := sha256.Sum256(fmt.Appendf(nil, "%s\n%s", r.identity(), t.ID))
	start := t.Started
	if start.IsZero() {
		start = r.Began
	}
	// add makes a span of the trace; turn and call are -1 where it is of neither.
	add := func(name string, kind tracev1.Span_SpanKind, turn, call int, from time.Time, seconds float64, values map[string]any) *tracev1.Span {
		own := func(turn, call int) []byte {
			id := sha256.Sum256(fmt.Appendf(trace[:], "%d %d", turn, call))
			return id[:8]
		}
		s := &tracev1.Span{
			TraceId: trace[:16], SpanId: own(turn, call), Name: valid(strings.TrimSpace(name)), Kind: kind, StartTimeUnixNano: nanos(from), EndTimeUnixNano: nanos(later(from, seconds)),
			Attributes: attributes(values),
		}
		if turn >= 0 {
			s.ParentSpanId = own(-1, -1)
		}
		return s
	}
	values := map[string]any{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": r.Name, "gen_ai.provider.name": "agentfly", "gen_ai.conversation.id": t.ID,
		"gen_ai.request.model": r.Model, "agentfly.phase": record.Phase, "agentfly.step": t.Step, "agentfly.group": t.Group, "agentfly.index": t.Index, "agentfly.task": t.TaskID,
		"agentfly.stop_reason": string(t.StopReason), "agentfly.branch": string(t.Branch),
	}
	paid, parts, ok := rewards(t)
	if ok {
		values["agentfly.reward"] = paid
	}
	for name, v := range parts {
		values["agentfly.reward."+name] = v
	}
	if content {
		values["gen_ai.input.messages"] = messagesOf(record.Task.Prompt)
	}
	root := add("invoke_agent "+r.Name, tracev1.Span_SPAN_KIND_INTERNAL, -1, -1, start, t.Seconds, values)
	if t.Failed() {
		failed(root, string(t.ErrOrigin), t.Err)
	}
	out := []*tracev1.Span{root}
	at := start
	for k := min(t.Forked, len(t.Turns)); k < len(t.Turns); k++ {
		turn := &t.Turns[k]
		values := map[string]any{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "agentfly", "gen_ai.conversation.id": t.ID, "gen_ai.request.model": r.Model,
			"gen_ai.request.seed":       int64(turn.Seed), // as its 64 bits: a seed from 2^63 on is negative here
			"gen_ai.usage.input_tokens": turn.CompletionStart + turn.BegunTokens(), "gen_ai.usage.output_tokens": turn.Sampled(),
			"gen_ai.response.finish_reasons": []string{string(turn.FinishReason)}, "agentfly.cached_tokens": turn.CachedTokens, "agentfly.turn": k,
			"agentfly.role": string(turn.Role),
		}
		if turn.Sample < len(t.Samples) {
			if s := t.Samples[turn.Sample]; s != nil && turn.CompletionEnd > turn.CompletionStart && turn.CompletionEnd <= len(s.PolicyVersion) {
				values["agentfly.policy_version"] = int64(s.PolicyVersion[turn.CompletionEnd-1])
			}
		}
		if ok && turn.Reward != nil {
			values["agentfly.reward"] = *turn.Reward
		}
		if content {
			values["gen_ai.output.messages"] = jsonText([]map[string]any{{
				"role": "assistant", "parts": []map[string]any{{"type": "text", "content": turn.Completion}}, "finish_reason": turn.FinishReason,
			}})
		}
		out = append(out, add("chat "+r.Model, tracev1.Span_SPAN_KIND_CLIENT, k, -1, at, turn.EngineSeconds, values))
		at = later(at, turn.EngineSeconds)
		for i := range turn.Results {
			result := &turn.Results[i]
			values := map[string]any{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": result.Call.Name, "gen_ai.tool.call.id": result.Call.ID,
				"agentfly.turn": k, "agentfly.retries": result.Retries,
			}
			if content {
				values["gen_ai.tool.call.arguments"], values["gen_ai.tool.call.result"] = string(result.Call.Arguments), result.Observation
			}
			s := add("execute_tool "+result.Call.Name, tracev1.Span_SPAN_KIND_INTERNAL, k, i, at, result.Duration.Seconds(), values)
			if result.Failed {
				failed(s, string(result.Cause), "")
			}
			out = append(out, s)
		}
		at = later(at, turn.ToolSeconds)
	}
	return out
}

// failed marks a span as an error of a type. The message is a fault of the run's, and no content.
func failed(s *tracev1.Span, kind, message string) {
	s.Attributes = append(s.Attributes, attributes(map[string]any{"error.type": kind})...)
	s.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR, Message: valid(message)}
}

// messagesOf are messages in the form of the conventions.
func messagesOf(all []trajectory.Message) string {
	out := []map[string]any{}
	for _, m := range all {
		out = append(out, map[string]any{"role": m.Role, "parts": []map[string]any{{"type": "text", "content": plain(m.Content)}}})
	}
	return jsonText(out)
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// attributes are values of a span in the order of their names. Texts that are empty and numbers that are not finite are left out.
func attributes(values map[string]any) []*commonv1.KeyValue {
	var out []*commonv1.KeyValue
	text := func(v string) *commonv1.AnyValue {
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: valid(v)}}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		var v *commonv1.AnyValue
		switch x := values[key].(type) {
		case string:
			if x != "" {
				v = text(x)
			}
		case int:
			v = &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: int64(x)}}
		case int64:
			v = &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: x}}
		case float64:
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				v = &commonv1.AnyValue{Value: &commonv1.AnyValue_DoubleValue{DoubleValue: x}}
			}
		case []string:
			list := &commonv1.ArrayValue{}
			for _, one := range x {
				list.Values = append(list.Values, text(one))
			}
			v = &commonv1.AnyValue{Value: &commonv1.AnyValue_ArrayValue{ArrayValue: list}}
		}
		if v != nil {
			out = append(out, &commonv1.KeyValue{Key: valid(key), Value: v})
		}
	}
	return out
}

// valid is a text that protobuf takes: UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "�") }

// later is a time some seconds on; seconds that are no duration are none.
func later(from time.Time, seconds float64) time.Time {
	if !(seconds > 0) || seconds > math.MaxInt64/2/float64(time.Second) {
		return from
	}
	return from.Add(time.Duration(seconds * float64(time.Second)))
}

func nanos(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }
