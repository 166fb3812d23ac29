package gateway

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/trajectory"
)

// SessionOptions say what a session is for.
type SessionOptions struct {
	Name   string // of the trajectory: in the ids of requests, errors and logs
	Key    string
	Engine string // the engine's name of the session: its requests share it
	Budget Budget
	// Sampling stands in place of the gateway's; nil: the gateway's.
	Sampling *engines.Sampling
	Parse    bool                  // a completion that a token limit cut counts as if the model had ended it
	MaxTotal int                   // tokens of a sample; 0: the gateway's
	Seed     func(call int) uint64 // of the request of a call, which are counted from 0 as they come
	// Trajectory is what the session grows. It has no turns.
	Trajectory *trajectory.Trajectory
	// Record stores what the trajectory grew by in its newest turn, before the reply is sent; nil: nowhere.
	Record func(ctx context.Context, t *trajectory.Trajectory) error
	// Recovered is what was recorded of the trajectory before: calls that are asked for again get the recorded reply. nil: nothing.
	Recovered *trajectory.Trajectory
	Tree      *Tree // where in a tree the trajectory grows; nil: it is in none
	// Adopt says that the agent lived on while the process did not: the trajectory goes on behind all that was recorded.
	Adopt bool
	// Rewrite says that what was recorded of the trajectory is not what it is now, so that the next record has all of it; nil: nothing is recorded.
	Rewrite func()
}

// Session is the calls of one agent's run, and the trajectory that they make. All methods are safe for concurrent use.
type Session struct {
	gate     Options
	o        SessionOptions
	ctx      context.Context // ends with the session
	cancel   context.CancelCauseFunc
	leave    func() // the gateway forgets it
	running  sync.WaitGroup
	prompts  prompter
	spending spending
	faults   faults
	refusals refusals
	tenure   tenure

	logs      sync.Mutex // held from a change of the trajectory until it is stored; taken before mu, which is not held meanwhile
	mu        sync.Mutex
	over      bool
	calls     calls
	growth    growth
	recovered recovered
	fork      *fork // nil: the trajectory is in no tree
}

var errEnded = &dialects.Error{Status: http.StatusServiceUnavailable, Message: "the session is over; try again later", Code: "session_over"}

// newSession fails with ErrLost.
func newSession(gate Options, o SessionOptions) (*Session, error) {
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
	gate.MaxTotal = cmp.Or(o.MaxTotal, gate.MaxTotal)
	s := &Session{
		gate: gate, o: o, calls: newCalls(),
		prompts:   prompter{gate.Renderer, gate.Encode, gate.Format},
		spending:  spending{budget: o.Budget},
		growth:    growth{t: o.Trajectory, parse: o.Parse, history: history{gate.History == AsSent, map[key][]*said{}}},
		recovered: recovered{posts: posts{t: o.Trajectory}, rewrite: o.Rewrite},
		fork:      forkOf(o.Tree),
		tenure:    newTenure(),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	first := 0 // turn of its own
	if s.fork != nil && s.fork.Base != nil {
		if first = s.fork.turns; s.adopt(s.fork.Base, true) < first {
			s.cancel(nil)
			s.growth.t.Turns, s.growth.t.Samples = nil, nil
			return nil, ErrLost
		}
	}
	if o.Recovered != nil {
		s.tenure.recall(o.Recovered)
	}
	if r := o.Recovered; r != nil && o.Adopt {
		adopted := s.adopt(r, false)
		if s.recovered.posts.adopt(r, adopted); adopted < len(r.Turns) {
			s.recovered.leave()
		}
	} else if r != nil {
		for i := first; i < len(r.Turns); i++ {
			s.recovered.turns = append(s.recovered.turns, recordedTurn{r.Turns[i], r.Samples[r.Turns[i].Sample], i})
		}
		s.recovered.posts.recall(r)
	}
	return s, nil
}

// asked is a request with what its HTTP headers and path say.
type asked struct {
	*dialects.Request
	dialect string
	header  http.Header
	path    string
	tries   int      // how often it was sent before, as the client marks it
	mark    string   // Idempotency-Key
	forms   []string // parameters that ask for a form of the reply

	variables bool // it sets variables of the chat template
}

// begin finds the call of a request: one that it asks for again, or a new one that is sampled from now on. leave must be called when the client is
// served or gone.
func (s *Session) begin(q asked) (c *call, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, nil, errEnded
	}
	if _, failed := s.faults.all(); errors.Is(failed, ErrOtherWay) {
		return nil, nil, otherWay(failed)
	}
	if c = s.calls.repeated(q); c == nil {
		c = s.calls.recorded(q)
	}
	if c == nil {
		number, recorded := s.recovered.number(&s.calls, q)
		c = &call{
			id: callName(s.o.Name, number), session: s.o.Name, number: number, asks: q.asks(), mark: q.mark, created: s.gate.Now(),
			done: make(chan struct{}), turn: -1, recorded: recorded,
		}
		s.calls.add(c)
		s.running.Go(func() { s.answer(c, q) })
	} else {
		s.gate.figures.call(callRepeated)
	}
	c.waiting++
	c.tries = max(c.tries, q.tries)
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.waiting--
	}, nil
}

// deliver writes the last of a reply. The call counts as answered from before that on, because its client may act on it before this process knows that it
// was written; where writing fails, nobody has read it.
func (s *Session) deliver(c *call, write func() error) {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.readers += n
	}
	count(1)
	if write() != nil {
		count(-1)
	}
}

// answer samples the reply of a call.
func (s *Session) answer(c *call, q asked) {
	defer close(c.done)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.turn < 0 && c.after != nil { // it does not go on
			c.after.behind--
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			s.gate.Warn(fmt.Sprintf("gateway: %s panicked: %v", c.id, p))
			s.gate.figures.call(callFailed)
			s.spending.giveBack()
			c.err = &dialects.Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf("%s panicked: %v", c.id, p)}
		}
	}()
	c.reply, c.err = s.sample(c, q)
	switch {
	case c.err == nil && c.reply.Finish == dialects.FinishBudget:
		s.gate.figures.call(callBudget)
		return
	case c.err == nil:
		s.gate.figures.answered(s.gate.Now().Sub(c.created))
		return
	}
	s.gate.figures.call(callFailed)
	s.spending.giveBack()
	if s.ctx.Err() != nil {
		c.err = errEnded
	}
}

func (s *Session) sample(c *call, q asked) (reply dialects.Reply, err error) {
	beyond := func() bool {
		reply = dialects.Reply{ID: c.id, Model: s.gate.Model, Created: c.created, Content: s.spending.grant(s.gate.Now()), Finish: dialects.FinishBudget}
		return reply.Content != ""
	}
	if c.recorded { // the budget held for it, whatever other calls have taken of it since
		s.spending.adopt(0)
	} else if beyond() {
		return reply, nil
	}
	p, err := s.render(c, q)
	if err != nil {
		return reply, err
	}
	if done, ok, err := s.recall(c, q, p); ok || err != nil {
		return done, err
	}
	if c.recorded { // with another prompt, or for an equal call
		if s.spending.giveBack(); beyond() {
			return reply, nil
		}
	}
	room := s.gate.MaxTotal - len(p.ids)
	if room < 1 {
		return reply, dialects.Overflow(s.gate.MaxTotal, len(p.ids))
	}
	form, err := formOf(s.gate, q, p)
	if err != nil {
		return reply, err
	}
	begun, err := s.begins(c, q, p)
	if err != nil {
		return reply, err
	}
	sampling := s.gate.Sampling
	sampling.MaxTokens = min(sampling.MaxTokens, room, s.spending.left())
	own := q.MaxTokens != nil && *q.MaxTokens < sampling.MaxTokens
	if own {
		sampling.MaxTokens = max(1, *q.MaxTokens)
	}
	sampling.Stop = slices.Concat(sampling.Stop, q.Stop)
	most := sampling.MaxTokens
	prompt := slices.Clip(p.ids)
	if begun != nil {
		prompt, sampling.MaxTokens = append(prompt, begun.IDs...), max(1, sampling.MaxTokens-len(begun.IDs))
	}
	seed := s.o.Seed(c.number)
	ctx, cancel := context.WithTimeout(s.ctx, s.gate.Timeout)
	defer cancel()
	w := watchdog.Enter(ctx, "engine", c.id)
	began := s.gate.Now()
	done, entropy, err := s.fork.generate(w.In(ctx), s.gate.Engine, engines.Request{
		ID: c.id, Session: s.o.Engine, Prompt: prompt, Messages: p.history, Sampling: sampling, Seed: seed, Constraint: form,
	})
	w.Leave()
	seconds := s.gate.Now().Sub(began).Seconds()
	switch {
	case errors.Is(err, engines.ErrForeign):
		s.faults.fails(err)
		return reply, &dialects.Error{Status: http.StatusServiceUnavailable, Message: err.Error()}
	case errors.Is(err, engines.ErrTooLong):
		most := s.gate.MaxTotal
		if n := s.gate.Engine.Capabilities().MaxModelLen; n > 0 { // the engine tells it
			most = min(most, n)
		}
		return reply, dialects.Overflow(most, len(p.ids))
	case errors.Is(err, engines.ErrRefused) && (q.Prompt.IDs != nil || form != nil): // what the agent wrote itself is wrong, and would be again
		return reply, &dialects.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%s: %v", c.id, err)}
	case err == nil && len(done.TokenIDs) == 0:
		err = errors.New("the completion is empty")
		fallthrough
	case err != nil:
		if s.ctx.Err() == nil {
			s.faults.breaks(fmt.Errorf("%s: %w", c.id, err))
		}
		return reply, &dialects.Error{Status: http.StatusServiceUnavailable, Message: fmt.Sprintf("%s: %v", c.id, err)}
	}
	s.gate.figures.tokens(len(prompt), len(done.TokenIDs))
	turn := trajectory.Turn{
		Seed: seed, FinishReason: done.FinishReason, CachedTokens: done.CachedTokens, EngineSeconds: seconds, Entropy: entropy,
		Incoming: &trajectory.Incoming{
			Dialect: q.dialect, Digest: hex.EncodeToString(q.Digest[:]), Asked: q.Asked, Tools: len(q.Tools) > 0, Stop: q.Stop,
			Role: s.gate.rules.role(q), Call: c.number + 1, Serial: !q.Parallel, Prompt: q.Prompt.Text,
			MaxTokens: most, OwnLimit: own, Created: c.created.Unix(), Holder: s.tenure.name(), Spent: s.spending.seconds(s.gate.Now()),
		},
	}
	if begun != nil {
		turn.Begun, done = begun.By, begun.Before(done)
	}
	if q.Choice.Mode != dialects.ChoiceAuto {
		turn.Incoming.Choice = string(q.Choice.Mode)
	}
	turn.Incoming.Unapplied = q.unapplied(form != nil)
	if form != nil {
		turn.Incoming.Held = q.forms
	} else if q.forms != nil {
		s.gate.formless.Do(func() {
			s.gate.Warn(fmt.Sprintf("gateway: %s asks for %s, which is not applied: the policy samples freely, and is trained on what it samples; ask for the form in the prompt, and read replies that have another", c.id, strings.Join(q.forms, " and ")))
		})
	}
	if q.variables {
		s.gate.unset.Do(func() {
			s.gate.Warn(fmt.Sprintf("gateway: %s asks for %s, which is not applied: the job's chat template renders every prompt without these variables; set them in a template of your own (model.chat_template)", c.id, variables))
		})
	}
	p.tell(turn.Incoming, q)
	return s.commit(c, q, p, turn, done)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.recovered.take(&s.calls, c, p.ids)
	if !ok {
		return reply, false, false, nil
	}
	from, to := r.turn.CompletionStart, r.turn.CompletionEnd
	done := engines.Completion{
		TokenIDs: r.sample.TokenIDs[from:to], Logprobs: r.sample.SamplingLogprobs[from:to], Versions: r.sample.PolicyVersion[from:to],
		FinishReason: r.turn.FinishReason, CachedTokens: r.turn.CachedTokens,
	}
	s.gate.rules.role(q) // the turn has its role; the rule named a call
	turn, in := r.turn, *r.turn.Incoming
	c.begun = len(turn.Begun) > 0
	p.tell(&in, q)
	turn.Incoming = &in // the record of before stays as it is
	if reply, err = s.append(c, q, p, turn, done, s.growth.history.keyOf(q.Messages)); err != nil {
		return reply, true, false, err
	}
	s.recovered.posts.move(r.index, c.turn)
	if s.recovered.taken < 0 {
		return reply, true, false, nil
	}
	s.recovered.taken++
	return reply, true, true, nil
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
	if _, failed := s.faults.all(); s.over || failed != nil {
		return dialects.Reply{}, errEnded
	}
	reply, err := s.append(c, q, p, turn, done, s.growth.history.keyOf(q.Messages))
	if err == nil && len(s.recovered.turns) > 0 {
		s.recovered.leave() // the log has turns that come later now, or never
	}
	return reply, err
}

// record stores what is new of the trajectory. logs is held, so that nothing changes it meanwhile.
func (s *Session) record() error {
	if s.o.Record == nil {
		return nil
	}
	if err := s.o.Record(context.WithoutCancel(s.ctx), s.growth.t); err != nil { // the agent's end is no failure of the store
		s.faults.fails(err)
		return &dialects.Error{Status: http.StatusServiceUnavailable, Message: "what was asked for could not be stored: " + err.Error()}
	}
	return nil
}

// Calls is how many calls were asked for, retries left out.
func (s *Session) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls.arrived
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

// Outcome is what became of a session.
type Outcome struct {
	Calls   int      // that were asked for, retries and those beyond the budget left out
	Refused int      // beyond the budget
	Unasked int      // that were recorded before the fork and did not come again
	Posted  *float64 // the sum of the rewards that were posted for the trajectory; nil: none was
	Cut     bool     // a token limit of the job's cut the agent's last completion, so that the trajectory has no answer
	Broke   error    // of the engine, where it had no answer to the newest call
	Refusal error    // why the newest request was refused, if one was and no call was answered since; nil: none
	Err     error    // what the trajectory cannot stand with: a turn that could not be stored, another run's weights; nil: nothing
}

// Finish ends the session, and gives the turns of its trajectory their roles and the trajectory its answer.
func (s *Session) Finish() Outcome {
	s.End()
	s.logs.Lock()
	defer s.logs.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	t, read := s.growth.t, s.calls.read()
	before := rolesOf(t)
	assignRoles(t, func(turn int) bool {
		answered, asked := read[turn]
		return answered || !asked
	})
	cut := cutShort(t, s.o.Parse)
	answerOf(t, cut)
	dropped := len(s.recovered.turns) > 0 && s.recovered.posts.drop()
	broke, failed := s.faults.all()
	refused := s.spending.beyond()
	out := Outcome{Calls: s.calls.arrived - refused, Refused: refused, Unasked: s.fork.before(&s.calls), Cut: cut, Broke: broke, Refusal: s.refusals.newest(), Err: failed, Posted: payPosts(t)}
	if s.recovered.ahead() || dropped || !slices.Equal(before, rolesOf(t)) {
		s.recovered.taken = -1
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
		out = append(out, fmt.Sprint(turn.Role, "\x00", turn.AnsweredThisTurn, "\x00", turn.FinalAnswer, "\x00", reward))
	}
	return out
}

// render makes the prompt of a request, behind the reply that it goes on after, where the session knows it. c is nil where nothing is sampled for it.
func (s *Session) render(c *call, q asked) (prompt, error) {
	s.mu.Lock()
	known := hints{schemas: schemasOf(q.Tools), prompt: s.fork.prompt(q)}
	if c != nil && known.prompt == nil {
		known.prompt = s.recovered.prompt(&s.calls, c)
	}
	before, rest := s.growth.history.find(q.Messages, known)
	if c != nil && before != nil {
		c.after = before
		before.behind++
	}
	s.mu.Unlock()
	return s.prompts.render(q, before, rest)
}

// append adds a turn to the trajectory: to the sample that its prompt extends, or to a new one. asked is the key of its conversation.
func (s *Session) append(c *call, q asked, p prompt, turn trajectory.Turn, done engines.Completion, asked key) (reply dialects.Reply, err error) {
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
	reply, echoes := readReply(c.session, s.gate.Model, c, q, p, turn.Completion, done)
	if q.Messages != nil {
		reply.Usage.Reasoning = agents.ThoughtTokens(done.TokenIDs, turn.Completion, s.gate.Decode, agents.OpensThought(p.text))
	}
	s.fork.name(&turn, s.o.Name, len(s.growth.t.Turns))
	c.turn = s.growth.add(q, p, turn, done, reply, echoes, asked)
	s.spending.sample(len(done.TokenIDs))
	s.faults.breaks(nil)
	s.refusals.settle()
	return reply, nil
}
