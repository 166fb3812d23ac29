package gateway

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Budget bounds a session; 0 is any number. When it is spent, calls get a reply that says so, and nothing is sampled for it.
type Budget struct {
	Calls  int
	Tokens int // sampled
	Until  time.Time
}

// SessionOptions say what a session is for.
type SessionOptions struct {
	Name   string // of the trajectory: in the ids of requests, errors and logs
	Key    string
	Engine string // the engine's name of the session: its requests share it
	Budget Budget
	// Sampling stands in place of the gateway's; nil: the gateway's.
	Sampling *engines.Sampling
	Seed     func(call int) uint64 // of the request of a call, which are counted from 0 as they come
	// Trajectory is what the session grows. It has no turns.
	Trajectory *trajectory.Trajectory
	// Record stores what the trajectory grew by in its newest turn, before the reply is sent; nil: nowhere.
	Record func(ctx context.Context, t *trajectory.Trajectory) error
	// Recovered is what was recorded of the trajectory before: calls that are asked for again get the recorded reply. nil: nothing.
	Recovered *trajectory.Trajectory
	// Adopt says that the agent lived on while the process did not: the trajectory goes on behind all that was recorded.
	Adopt bool
	// Rewrite says that what was recorded of the trajectory is not what it is now, so that the next record has all of it; nil: nothing is recorded.
	Rewrite func()
}

// Session is the calls of one agent's run, and the trajectory that they make. All methods are safe for concurrent use.
type Session struct {
	gate    Options
	o       SessionOptions
	ctx     context.Context // ends with the session
	cancel  context.CancelCauseFunc
	leave   func() // the gateway forgets it
	running sync.WaitGroup

	logs     sync.Mutex // held from a change of the trajectory until it is stored; taken before mu, which is not held meanwhile
	mu       sync.Mutex
	over     bool
	calls    calls
	arrived  int   // calls that were asked for, but for retries: the number of the next one
	sampled  int   // tokens
	granted  int   // calls that the budget holds for, but for those that failed
	refused  int   // calls beyond the budget
	broke    error // of the engine, for the newest call; nil: it was answered
	history  history
	newest   *said // reply
	t        *trajectory.Trajectory
	recorded []recordedTurn // of Recovered, not asked for again yet
	taken    int            // turns of Recovered that were, in their order
	posts    posts          // what was posted before this process began
	failed   error          // what the trajectory cannot go on after: it could not be stored
}

// recordedTurn is a turn that was recorded before the process ended.
type recordedTurn struct {
	turn   trajectory.Turn
	sample *trajectory.Sample
	index  int // in the trajectory then
}

// call is a request and its reply.
type call struct {
	id       string
	number   int // as they came
	digest   key
	mark     string // Idempotency-Key; "": none
	created  time.Time
	done     chan struct{} // closed when reply or err is there
	reply    dialects.Reply
	err      error
	turn     int  // of the trajectory; -1: none
	waiting  int  // clients that wait for it
	answered bool // a client has read the whole reply
	adopted  bool // before this process began; whether it was read is not known
}

var errEnded = &dialects.Error{Status: http.StatusServiceUnavailable, Message: "the session is over; try again later", Code: "session_over"}

func newSession(gate Options, o SessionOptions) *Session {
	if o.Trajectory == nil {
		o.Trajectory = &trajectory.Trajectory{ID: o.Name}
	}
	if o.Rewrite == nil {
		o.Rewrite = func() {}
	}
	if o.Seed == nil {
		o.Seed = func(n int) uint64 { return uint64(n) }
	}
	if o.Sampling != nil {
		gate.Sampling = *o.Sampling
	}
	s := &Session{gate: gate, o: o, calls: newCalls(), t: o.Trajectory, history: history{gate.History == AsSent, map[key][]*said{}}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if r := o.Recovered; r != nil && o.Adopt {
		adopted := s.adopt(r)
		if s.adoptPosts(r, adopted); adopted < len(r.Turns) {
			s.anew()
		}
	} else if r != nil {
		for i, turn := range r.Turns {
			s.recorded = append(s.recorded, recordedTurn{turn, r.Samples[turn.Sample], i})
		}
		s.recallPosts(r)
	}
	return s
}

// asked is a request with what its HTTP headers and path say.
type asked struct {
	*dialects.Request
	dialect string
	header  http.Header
	path    string
	retry   bool   // the client marks it as sent before
	mark    string // Idempotency-Key
}

// begin finds the call of a request: one that it asks for again, or a new one that is sampled from now on. leave must be called when the client is
// served or gone.
func (s *Session) begin(q asked) (c *call, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, nil, errEnded
	}
	if c = s.calls.again(q); c == nil {
		c = &call{
			id: s.name(s.arrived), number: s.arrived, digest: q.Digest, mark: q.mark, created: s.gate.Now(),
			done: make(chan struct{}), turn: -1,
		}
		s.arrived++
		s.calls.add(c)
		s.running.Go(func() { s.answer(c, q) })
	}
	c.waiting++
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.waiting--
	}, nil
}

// deliver writes the last of a reply. The call counts as answered from before that on, because its client may act on it before this process knows that it
// was written; where writing fails, nobody has read it.
func (s *Session) deliver(c *call, write func() error) {
	mark := func(answered bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.answered = answered
	}
	mark(true)
	if write() != nil {
		mark(false)
	}
}

// answer samples the reply of a call.
func (s *Session) answer(c *call, q asked) {
	defer close(c.done)
	defer func() {
		if p := recover(); p != nil {
			s.gate.Warn(fmt.Sprintf("gateway: %s panicked: %v", c.id, p))
			c.err = &dialects.Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf("%s panicked: %v", c.id, p)}
		}
	}()
	c.reply, c.err = s.sample(c, q)
	if c.err == nil {
		return
	}
	s.mu.Lock()
	s.granted-- // it comes again
	s.mu.Unlock()
	if s.ctx.Err() != nil {
		c.err = errEnded
	}
}

// prompt is what a call asks the engine for.
type prompt struct {
	ids     []int32
	text    string
	history []trajectory.Message // that text renders
	after   int                  // the turn that it goes on after; -1: none
	fresh   []trajectory.Message // behind that turn's reply, whose ids go on; nil: all are rendered
	schemas key
	format  agents.Format // nil: calls are not looked for
}

func (s *Session) sample(c *call, q asked) (reply dialects.Reply, err error) {
	if text := s.spent(c); text != "" {
		return dialects.Reply{ID: c.id, Model: s.gate.Model, Created: c.created, Content: text, Finish: dialects.FinishBudget}, nil
	}
	p, err := s.render(q)
	if err != nil {
		return reply, err
	}
	if done, ok, err := s.recall(c, q, p); ok || err != nil {
		return done, err
	}
	room := s.gate.MaxTotal - len(p.ids)
	if room < 1 {
		return reply, dialects.Overflow(s.gate.MaxTotal, len(p.ids))
	}
	sampling := s.gate.Sampling
	if q.MaxTokens != nil {
		sampling.MaxTokens = min(sampling.MaxTokens, max(1, *q.MaxTokens))
	}
	sampling.MaxTokens = min(sampling.MaxTokens, room, s.left())
	sampling.Stop = slices.Concat(sampling.Stop, q.Stop)
	seed := s.o.Seed(c.number)
	ctx, cancel := context.WithTimeout(s.ctx, s.gate.Timeout)
	defer cancel()
	w := watchdog.Enter(ctx, "engine", c.id)
	began := s.gate.Now()
	done, err := s.gate.Engine.Generate(w.In(ctx), engines.Request{
		ID: c.id, Session: s.o.Engine, Prompt: slices.Clip(p.ids), Messages: p.history, Sampling: sampling, Seed: seed,
	})
	w.Leave()
	seconds := s.gate.Now().Sub(began).Seconds()
	switch {
	case errors.Is(err, engines.ErrForeign):
		s.fail(err)
		return reply, &dialects.Error{Status: http.StatusServiceUnavailable, Message: err.Error()}
	case err == nil && len(done.TokenIDs) == 0:
		err = errors.New("the completion is empty")
		fallthrough
	case err != nil:
		s.breaks(fmt.Errorf("%s: %w", c.id, err))
		return reply, &dialects.Error{Status: http.StatusServiceUnavailable, Message: fmt.Sprintf("%s: %v", c.id, err)}
	}
	turn := trajectory.Turn{
		Seed: seed, FinishReason: done.FinishReason, CachedTokens: done.CachedTokens, EngineSeconds: seconds,
		Incoming: &trajectory.Incoming{
			Dialect: q.dialect, Digest: hex.EncodeToString(q.Digest[:]), Asked: q.Asked, Tools: len(q.Tools) > 0, Stop: q.Stop,
			Role: s.gate.role(q), After: p.after, Call: c.number + 1, Serial: !q.Parallel, Prompt: q.Prompt.Text,
		},
	}
	if q.Choice.Mode != dialects.ChoiceAuto {
		turn.Incoming.Choice = string(q.Choice.Mode)
	}
	messages := p.fresh
	if p.fresh == nil {
		messages, turn.Incoming.Whole, turn.Incoming.Schemas = q.Messages, true, q.Tools
	}
	turn.Incoming.Messages, _ = json.Marshal(messages) // what cannot be written is not adopted after a restart
	return s.commit(c, q, p, turn, done)
}

// left is how many tokens the budget still holds.
func (s *Session) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Budget.Tokens == 0 {
		return math.MaxInt
	}
	return max(1, s.o.Budget.Tokens-s.sampled)
}

// breaks notes that the engine has no answer to a call; the next one that it answers makes good for it.
func (s *Session) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.broke = err
	}
}

// spent says that the session's budget does not hold for a call; "": it does.
func (s *Session) spent(c *call) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, why := s.o.Budget, ""
	switch {
	case b.Calls > 0 && s.granted >= b.Calls:
		why = fmt.Sprintf("%d calls", b.Calls)
	case b.Tokens > 0 && s.sampled >= b.Tokens:
		why = fmt.Sprintf("%d tokens", b.Tokens)
	case !b.Until.IsZero() && !s.gate.Now().Before(b.Until):
		why = "its time"
	default:
		s.granted++
		return ""
	}
	s.refused++
	return "The budget of this session is spent: " + why + ". Stop here."
}

// render makes the prompt of a request: behind the reply that it goes on after, where there is one, else of all its messages.
func (s *Session) render(q asked) (p prompt, err error) {
	p = prompt{after: -1}
	if p.schemas, p.format, err = s.toolsOf(q); err != nil {
		return p, err
	}
	bad := func(err error) error {
		return &dialects.Error{Status: http.StatusBadRequest, Message: err.Error(), Param: "messages"}
	}
	if q.Messages == nil {
		return s.completion(q, p)
	}
	s.mu.Lock()
	before, rest := s.history.find(q.Messages)
	s.mu.Unlock()
	if before != nil {
		p.after = before.turn
	}
	if before != nil && before.schemas == p.schemas && len(rest) > 0 {
		r := masks.Reply{History: before.history, Tools: q.Tools, Completion: before.completion, Results: rest, Sampled: before.sampled, Prompt: before.text}
		ids, text, err := s.gate.Renderer.Continue(r)
		if err == nil {
			p.ids, p.text, p.history, p.fresh = slices.Concat(before.ids, ids), text, r.Messages(), rest
			return p, nil
		}
		if !errors.Is(err, masks.ErrRewritten) {
			return p, bad(err)
		}
	}
	if p.ids, p.text, err = s.gate.Renderer.Prompt(q.Messages, q.Tools, true); err != nil {
		return p, bad(err)
	}
	p.history = q.Messages
	return p, nil
}

// toolsOf names the tools of a request, and makes the format of their calls; nil: calls are not looked for.
func (s *Session) toolsOf(q asked) (schemas key, f agents.Format, err error) {
	for _, t := range q.Tools {
		schemas = schemas.with(hashOf(dialects.Canonical(t)))
	}
	if len(q.Tools) == 0 || q.Choice.Mode == dialects.ChoiceNone {
		return schemas, nil, nil
	}
	specs, err := specsOf(q.Tools)
	if err != nil {
		return schemas, nil, err
	}
	if f, err = s.gate.Format(specs); err != nil {
		return schemas, nil, &dialects.Error{Status: http.StatusBadRequest, Message: err.Error(), Param: "tools"}
	}
	return schemas, f, nil
}

// completion is the prompt of a request without a conversation.
func (s *Session) completion(q asked, p prompt) (prompt, error) {
	p.text, p.ids = q.Prompt.Text, q.Prompt.IDs
	if p.ids == nil && s.gate.Encode != nil {
		p.ids = s.gate.Encode(p.text)
	}
	if len(p.ids) == 0 {
		return p, &dialects.Error{Status: http.StatusBadRequest, Message: "the prompt is empty", Param: "prompt"}
	}
	return p, nil
}

// recall gives a call the reply that was recorded for the same request before the process ended; ok is false where there is none.
func (s *Session) recall(c *call, q asked, p prompt) (reply dialects.Reply, ok bool, err error) {
	s.logs.Lock()
	defer s.logs.Unlock()
	reply, ok, stored, err := s.recalled(c, q, p)
	if ok && err == nil && !stored {
		err = s.record()
	}
	return reply, ok, err
}

// recalled is recall without storing; stored says that the turn is in the log where it is now.
func (s *Session) recalled(c *call, q asked, p prompt) (reply dialects.Reply, ok, stored bool, err error) {
	digest := hex.EncodeToString(q.Digest[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.recorded {
		if r.turn.Incoming == nil || r.turn.Incoming.Digest != digest || !slices.Equal(r.sample.TokenIDs[:r.turn.CompletionStart], p.ids) {
			continue
		}
		s.recorded = slices.Delete(s.recorded, i, i+1)
		if i > 0 { // in another order than before
			s.anew()
		}
		from, to := r.turn.CompletionStart, r.turn.CompletionEnd
		done := engines.Completion{
			TokenIDs: r.sample.TokenIDs[from:to], Logprobs: r.sample.SamplingLogprobs[from:to], Versions: r.sample.PolicyVersion[from:to],
			FinishReason: r.turn.FinishReason, CachedTokens: r.turn.CachedTokens,
		}
		turn, in := r.turn, *r.turn.Incoming
		in.After, turn.Incoming = p.after, &in // the record of before stays as it is
		if reply, err = s.append(c, q, p, turn, done, s.history.keyOf(q.Messages)); err != nil {
			return reply, true, false, err
		}
		s.movePosts(r.index, c.turn)
		if s.taken < 0 {
			return reply, true, false, nil
		}
		s.taken++
		return reply, true, true, nil
	}
	return reply, false, false, nil
}

// anew says that what was recorded is not what the trajectory is now.
func (s *Session) anew() {
	if s.taken >= 0 {
		s.setPostsAside(s.taken)
		s.taken = -1
		s.o.Rewrite()
	}
}

// commit makes a completion a turn of the trajectory and stores it. While it is being stored, other calls of the session are heard and kept alive.
func (s *Session) commit(c *call, q asked, p prompt, turn trajectory.Turn, done engines.Completion) (dialects.Reply, error) {
	s.logs.Lock()
	defer s.logs.Unlock()
	reply, err := s.committed(c, q, p, turn, done)
	if err != nil {
		return reply, err
	}
	return reply, s.record()
}

// committed is commit without storing.
func (s *Session) committed(c *call, q asked, p prompt, turn trajectory.Turn, done engines.Completion) (dialects.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.failed != nil {
		return dialects.Reply{}, errEnded
	}
	reply, err := s.append(c, q, p, turn, done, s.history.keyOf(q.Messages))
	if err == nil && len(s.recorded) > 0 {
		s.anew() // the log has turns that come later now, or never
	}
	return reply, err
}

// record stores what is new of the trajectory. logs is held, so that nothing changes it meanwhile.
func (s *Session) record() error {
	if s.o.Record == nil {
		return nil
	}
	if err := s.o.Record(context.WithoutCancel(s.ctx), s.t); err != nil { // the agent's end is no failure of the store
		s.fail(err)
		return &dialects.Error{Status: http.StatusServiceUnavailable, Message: "what was asked for could not be stored: " + err.Error()}
	}
	return nil
}

func (s *Session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

// append adds a turn to the trajectory: to the sample that its prompt extends, or to a new one. asked is the key of its conversation.
func (s *Session) append(c *call, q asked, p prompt, turn trajectory.Turn, done engines.Completion, asked key) (reply dialects.Reply, err error) {
	k := -1
	for i, sample := range s.t.Samples {
		if n := sample.Len(); n < len(p.ids) && (k < 0 || n > s.t.Samples[k].Len()) && slices.Equal(sample.TokenIDs, p.ids[:n]) {
			k = i
		}
	}
	next := &trajectory.Sample{}
	if k >= 0 {
		next = s.t.Samples[k]
	}
	checked := trajectory.Sample{}
	checked.AppendObservation([]int32{0})
	if err := checked.AppendResponse(done.TokenIDs, done.Logprobs, done.Versions); err != nil { // before anything changes
		return reply, &dialects.Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("%s: %v", c.id, err)}
	}
	text := done.TokenIDs
	if n := len(text) - 1; slices.Contains(s.gate.Sampling.StopIDs, text[n]) {
		text = text[:n]
	}
	turn.Completion = s.gate.Decode(text) // what may panic comes before anything changes
	reply, echoes := s.read(c, q, p, turn.Completion, done)
	next.AppendObservation(p.ids[next.Len():])
	turn.CompletionStart = next.Len()
	_ = next.AppendResponse(done.TokenIDs, done.Logprobs, done.Versions) // checked
	turn.CompletionEnd, turn.ObservationEnd = next.Len(), next.Len()
	if k < 0 {
		s.t.Samples = append(s.t.Samples, next)
		k = len(s.t.Samples) - 1
	}
	turn.Sample = k
	turn.AnsweredThisTurn = len(reply.Calls) == 0 && reply.Content != "" && reply.Finish == dialects.FinishStop
	turn.FinalAnswer = ""
	if turn.AnsweredThisTurn {
		turn.FinalAnswer = answerIn(reply.Content)
	}
	c.turn = len(s.t.Turns)
	s.t.Turns = append(s.t.Turns, turn)
	s.sampled, s.broke = s.sampled+len(done.TokenIDs), nil
	if q.Messages != nil {
		s.newest = &said{
			turn: c.turn, schemas: p.schemas, tools: q.Tools, history: p.history, text: p.text, completion: turn.Completion,
			ids: slices.Clip(next.TokenIDs), sampled: slices.Clip(next.TokenIDs[turn.CompletionStart:]),
		}
		s.history.add(asked, echoes, s.newest)
	}
	return reply, nil
}

// read takes a completion apart as its client reads it, and returns the messages by which the client may repeat it.
func (s *Session) read(c *call, q asked, p prompt, text string, done engines.Completion) (r dialects.Reply, echoes []trajectory.Message) {
	r = dialects.Reply{
		ID: c.id, Model: s.gate.Model, Created: c.created, Finish: dialects.FinishStop,
		Usage: dialects.Usage{Prompt: len(p.ids), Cached: done.CachedTokens, Completion: len(done.TokenIDs)},
	}
	if done.FinishReason != trajectory.FinishStop {
		r.Finish = dialects.FinishLength
	}
	for _, stop := range q.Stop { // the text ends before the first of them; those of the policy's own format are part of it
		if at := strings.Index(text, stop); at >= 0 && stop != "" {
			text, r.Stop = text[:at], stop
		}
	}
	rest := text
	if agents.OpensThought(p.text) {
		text = thinkOpen + text
	}
	if strings.HasPrefix(strings.TrimSpace(text), thinkOpen) {
		r.Reasoning, rest, _ = cutThought(text) // of one that does not end, nothing is left
		r.Reasoning, rest = strings.TrimSpace(r.Reasoning), strings.TrimLeft(rest, "\r\n")
	}
	if p.format != nil {
		splitter := agents.NewSplitter(p.format, !q.Parallel)
		var content []byte
		for _, piece := range append(splitter.Push(rest), splitter.End()...) {
			if piece.Call != nil {
				call := *piece.Call
				call.ID = s.callID(c, len(r.Calls))
				r.Calls = append(r.Calls, call)
			}
			content = append(content, piece.Content...)
		}
		rest = string(content)
	}
	r.Content = rest
	if len(r.Calls) > 0 && r.Finish == dialects.FinishStop {
		r.Finish = dialects.FinishCalls
	}
	echo := trajectory.Message{Role: "assistant", Reasoning: r.Reasoning, ToolCalls: r.Calls, Content: []trajectory.Part{{Type: "text", Text: r.Content}}}
	echoes = append(echoes, echo)
	if r.Stop != "" { // some clients put it back
		echo.Content = []trajectory.Part{{Type: "text", Text: r.Content + r.Stop}}
		echoes = append(echoes, echo)
	}
	return r, echoes
}

// answerIn is the body of <answer>…</answer> where a reply has one, as for the run's own agents, else the whole.
func answerIn(text string) string {
	if _, after, ok := strings.Cut(text, "<answer>"); ok {
		if body, _, closed := strings.Cut(after, "</answer>"); closed {
			return strings.TrimSpace(body)
		}
	}
	return strings.TrimSpace(text)
}

// callID names a call of a reply. It is the same when the reply is recalled.
func (s *Session) callID(c *call, n int) string {
	k := hashOf(s.o.Name + "/" + strconv.Itoa(c.number))
	return "call_" + hex.EncodeToString(k[:8]) + strconv.Itoa(n)
}

// Calls is how many calls were asked for, retries left out.
func (s *Session) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

// End ends the session: what is being sampled is dropped, and later calls are refused. It returns when nothing of it runs.
func (s *Session) End() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.cancel(errEnded)
	s.running.Wait()
	if s.leave != nil {
		s.leave()
	}
}

// specsOf reads OpenAI's schemas.
func specsOf(schemas []json.RawMessage) ([]tools.Spec, error) {
	specs := make([]tools.Spec, len(schemas))
	for i, t := range schemas {
		var tool struct {
			Function struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if err := json.Unmarshal(t, &tool); err != nil {
			return nil, &dialects.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("tools[%d]: %v", i, err), Param: "tools"}
		}
		specs[i] = tools.Spec{Name: tool.Function.Name, Description: tool.Function.Description, Parameters: tool.Function.Parameters}
	}
	return specs, nil
}

// Outcome is what became of a session.
type Outcome struct {
	Calls   int      // that were asked for, retries and those beyond the budget left out
	Refused int      // beyond the budget
	Posted  *float64 // the sum of the rewards that were posted for the trajectory; nil: none was
	Broke   error    // of the engine, where it had no answer to the newest call
	Err     error    // what the trajectory cannot stand with: a turn that could not be stored, another run's weights; nil: nothing
}

// Finish ends the session, and gives the turns of its trajectory their roles and the trajectory its answer.
func (s *Session) Finish() Outcome {
	s.End()
	s.logs.Lock()
	defer s.logs.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	read := s.calls.read()
	before := rolesOf(s.t)
	assignRoles(s.t, func(turn int) bool {
		answered, asked := read[turn]
		return answered || !asked
	})
	answerOf(s.t)
	dropped := s.dropPosts()
	out := Outcome{Calls: s.arrived - s.refused, Refused: s.refused, Broke: s.broke, Err: s.failed, Posted: payPosts(s.t)}
	if s.taken >= 0 && len(s.recorded) > 0 || dropped || !slices.Equal(before, rolesOf(s.t)) {
		s.taken = -1
		s.o.Rewrite() // also where it was before: what was stored since says otherwise
	}
	return out
}

// rolesOf are what Finish may change of a trajectory's turns.
func rolesOf(t *trajectory.Trajectory) (out []string) {
	for _, turn := range t.Turns {
		reward := ""
		if turn.Reward != nil {
			reward = fmt.Sprint(*turn.Reward)
		}
		out = append(out, string(turn.Role)+"\x00"+turn.FinalAnswer+"\x00"+reward)
	}
	return out
}
