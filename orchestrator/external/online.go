package external

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Online hands tasks to agents that come for them, wherever they run: a trajectory waits until an agent takes its task, and ends when the agent says so.
// It answers these routes:
//
//	POST /agentfly/task     with the run's key: the next assignment, or 204 after a while without one
//	POST /agentfly/sessions with the run's key: {"task": …} begins a trajectory for a task that the agent brings, or for none; without Begin it is the
//	                        route before, for agents that have work of their own
//	POST /agentfly/result   with the session's key: {"answer": …, "reward": …, "error": …}, each of which may be left out
type Online struct {
	Key      string        // that agents bear who come for tasks; not ""
	Address  string        // the base URL that agents are told; "": the one that they asked at
	Patience time.Duration // for which a request for a task waits; 0: 20 s
	// Begin begins a trajectory for a task that an agent brings, and returns its id; its Run follows. A *dialects.Error says that the task is refused. nil:
	// agents bring none.
	Begin func(ctx context.Context, task trajectory.Task) (id string, err error)
	// Expects waits for the session with one of the keys to open, where it goes on after a restart, and tells whether one is open, or may be later. nil:
	// none goes on.
	Expects func(ctx context.Context, keys ...string) (open, later bool)

	once  sync.Once
	open  chan *waiting // trajectories that wait for an agent
	mu    sync.Mutex
	taken map[string]*waiting      // by the session's key
	over  map[string]string        // results of the last that ended, by the session's key: who did not read the answer posts again
	order []string                 // of over
	known map[string]chan *waiting // by the trajectory's id: who began it waits
}

// waiting is a trajectory from its assignment to its result.
type waiting struct {
	Assignment
	gone  <-chan struct{} // closed when nobody waits any more
	ended chan result
	told  string // its result; "": it has none. Online.mu guards it
}

// result is what an agent posts at its end.
type result struct {
	Ended
	Error string `json:"error"` // why the agent failed; "": it did not
}

func (o *Online) begin() {
	o.once.Do(func() {
		o.open, o.taken, o.over, o.known = make(chan *waiting), map[string]*waiting{}, map[string]string{}, map[string]chan *waiting{}
		if o.Patience == 0 {
			o.Patience = 20 * time.Second
		}
	})
}

// Enter implements Runner.
func (o *Online) Enter(ctx context.Context) (leave func(), err error) { return func() {}, ctx.Err() }

// Run implements Runner.
func (o *Online) Run(ctx context.Context, a Assignment) (Ended, error) {
	o.begin()
	if a.Result != nil { // it was stored, and its agent may not know
		o.mu.Lock()
		o.settle(a.Key, a.Result)
		o.mu.Unlock()
		var r result
		if err := json.Unmarshal(a.Result, &r); err != nil {
			return Ended{}, fmt.Errorf("the result that was stored is no JSON: %w", err)
		}
		return r.end()
	}
	if o.Address != "" {
		a.URL = o.Address
	}
	w := &waiting{Assignment: a, gone: ctx.Done(), ended: make(chan result, 1)}
	o.mu.Lock()
	o.taken[a.Key] = w
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		delete(o.taken, a.Key)
		delete(o.known, a.ID) // nobody may have asked for it: who began it left
		o.mu.Unlock()
	}()
	if o.Begin != nil && !a.Resumed { // who began it is told
		o.begun(a.ID) <- w
	} else if !a.Resumed { // else its agent lives on, or its time ends
		select {
		case o.open <- w:
		case <-w.Held: // by an agent that had the task before this process began
		case r := <-w.ended: // of such a one
			return r.end()
		case <-ctx.Done():
			return Ended{}, fmt.Errorf("no agent came for the task: %w", ctx.Err())
		}
	}
	select {
	case r := <-w.ended:
		return r.end()
	case <-ctx.Done():
		return Ended{}, fmt.Errorf("its agent gave no result: %w", ctx.Err())
	}
}

func (r result) end() (Ended, error) {
	if r.Error != "" {
		return r.Ended, fmt.Errorf("the agent says: %s", lastLine(r.Error))
	}
	return r.Ended, nil
}

// Routes are the handlers of what agents ask.
func (o *Online) Routes() map[string]http.HandlerFunc {
	o.begin()
	return map[string]http.HandlerFunc{"/agentfly/task": o.task, "/agentfly/result": o.result, "/agentfly/sessions": o.session}
}

// begun is where the assignment of a trajectory comes that an agent began; it holds one.
func (o *Online) begun(id string) chan *waiting {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known[id] == nil {
		o.known[id] = make(chan *waiting, 1)
	}
	return o.known[id]
}

// session begins a trajectory for who asks.
func (o *Online) session(w http.ResponseWriter, r *http.Request) {
	if !o.admits(w, r) {
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest)) // to the end, as readToEnd does
	if err != nil {
		refuse(w, http.StatusBadRequest, unreadable(err))
		return
	}
	task, err := readSession(data)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if o.Begin == nil { // a run, whose next trajectory the agent makes what it likes of
		if task.Prompt != nil || task.Fields != nil || task.ID != "" {
			refuse(w, http.StatusConflict, "this run has tasks of its own, by which its rewards judge; leave task out, and post the reward")
			return
		}
		o.task(w, r)
		return
	}
	id, err := o.Begin(r.Context(), task)
	if err != nil {
		refuseFor(w, err)
		return
	}
	defer func() {
		o.mu.Lock()
		delete(o.known, id)
		o.mu.Unlock()
	}()
	select {
	case next := <-o.begun(id):
		if next.URL == "" {
			next.URL = "http://" + r.Host
		}
		_ = answer(w, http.StatusOK, next.Assignment) // one that nobody takes ends with its time
	case <-r.Context().Done():
	}
}

// readSession reads the task that an agent begins a session with; none, where it sends nothing. A key that is not known is an error: what was meant would be
// missing, for the rewards too.
func readSession(data []byte) (task trajectory.Task, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return task, nil
	}
	const example = `{"prompt": […], "fields": {…}}`
	var in struct {
		Task json.RawMessage `json:"task"`
	}
	if _, err = wording.ReadObject(data, &in, `{"task": `+example+`}`, "task"); err != nil {
		return task, fmt.Errorf("the session %w", err)
	}
	if in.Task == nil {
		return task, nil
	}
	if _, err = wording.ReadObject(in.Task, &task, example, "id", "prompt", "fields"); err != nil {
		return task, fmt.Errorf("the task of the session %w", err)
	}
	return task, nil
}

// admits tells whether who asks bears the run's key, and refuses who does not.
func (o *Online) admits(w http.ResponseWriter, r *http.Request) bool {
	if httpserver.Bears(r, o.Key) {
		return true
	}
	refuse(w, http.StatusUnauthorized, "the key is not the run's; send it as Authorization: Bearer KEY")
	return false
}

// longest bounds the body of a request for a task or a session, in bytes.
const longest = 32 << 20

// readToEnd reads what is left of a request's body, and refuses a body that cannot be read. Only behind the body's end does net/http notice that the client
// left, and end the request's context.
func readToEnd(w http.ResponseWriter, r *http.Request) bool {
	_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, longest))
	if err != nil {
		refuse(w, http.StatusBadRequest, unreadable(err))
	}
	return err == nil
}

func unreadable(err error) string {
	return fmt.Sprintf("the body of the request cannot be read; send at most %d bytes, or none: %v", longest, err)
}

// task hands the next task out.
func (o *Online) task(w http.ResponseWriter, r *http.Request) {
	if !o.admits(w, r) || !readToEnd(w, r) {
		return
	}
	patience := time.NewTimer(o.Patience)
	defer patience.Stop()
	for {
		select {
		case next := <-o.open:
			if next.taken() {
				continue
			}
			said := next.Assignment
			said.Key = sessionkey.ForHolder(next.Key, rand.Text())
			if said.URL == "" {
				said.URL = "http://" + r.Host
			}
			if err := answer(w, http.StatusOK, said); err != nil || r.Context().Err() != nil { // who asked is gone: somebody else may have it
				go o.offer(next)
			}
			return
		case <-patience.C:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

// taken tells whether a task is no longer to be handed out: its time is over, or an agent of before goes on with it.
func (w *waiting) taken() bool {
	select {
	case <-w.gone:
		return true
	case <-w.Held:
		return true
	default:
		return false
	}
}

// offer offers a task once more that did not reach its agent.
func (o *Online) offer(w *waiting) {
	select {
	case o.open <- w:
	case <-w.gone:
	case <-w.Held: // it did
	case r := <-w.ended:
		w.ended <- r
	}
}

// result takes the end of an agent.
func (o *Online) result(w http.ResponseWriter, r *http.Request) {
	of, holder, was, over, later := o.awaitBearer(r)
	if of != nil && of.Hold != nil && !over {
		if err := of.Hold(holder); err != nil {
			refuse(w, http.StatusUnauthorized, err.Error())
			return
		}
	}
	if of == nil && later {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "the trajectory of this key does not go on yet; try again later")
		return
	}
	if of == nil && !over {
		refuse(w, http.StatusUnauthorized, "the key is not that of a trajectory that waits for its result; it may be over")
		return
	}
	var in result
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the result cannot be read; send at most %d bytes: %v", most, err))
		return
	}
	if err := readResult(data, &in, "answer", "reward", "error"); err != nil {
		refuse(w, http.StatusBadRequest, "the result "+err.Error())
		return
	}
	body, err := json.Marshal(in)
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
		return
	case over && was != string(body):
		refuse(w, http.StatusConflict, "the trajectory has a result already")
		return
	case !over && of.Keep != nil:
		err = of.Keep(body) // before the agent is told, and ends
	}
	if err != nil {
		refuseFor(w, err)
		return
	}
	if !over && !o.end(of, in, body) {
		refuse(w, http.StatusConflict, "the trajectory has a result already")
		return
	}
	_ = answer(w, http.StatusOK, map[string]bool{"ok": true})
}

// end hands a trajectory's result to who waits for it, and remembers it before that one forgets the trajectory; false: there is another one already.
func (o *Online) end(of *waiting, r result, body []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of.told != "" {
		return of.told == string(body)
	}
	of.told = string(body)
	of.ended <- r
	o.settle(of.Key, body)
	return true
}

// awaitBearer is bearer, which waits for a trajectory that goes on after a restart, and is not there yet. later: it may be there later.
func (o *Online) awaitBearer(r *http.Request) (of *waiting, holder, was string, over, later bool) {
	keys, _ := sessionkey.Read(r)
	late := time.Now().Add(o.Patience)
	for {
		if of, holder, was, over = o.bearer(keys); of != nil || over || o.Expects == nil || !time.Now().Before(late) {
			return of, holder, was, over, false
		}
		open, later := o.Expects(r.Context(), keys...)
		if !open { // it may have ended since it was looked for
			of, holder, was, over = o.bearer(keys)
			return of, holder, was, over, of == nil && !over && later
		}
		select {
		case <-time.After(5 * time.Millisecond): // its session is open, and its runner is about to begin or to end
		case <-r.Context().Done():
			return nil, "", "", false, true
		}
	}
}

// bearer finds whose key is among those of a request: a trajectory that waits, or one that is over, with its result. holder is whom the key was made for.
func (o *Online) bearer(keys []string) (of *waiting, holder, was string, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, borne := range keys {
		key, holder := sessionkey.Split(borne)
		was, over = o.over[key]
		if of = o.taken[key]; of != nil || over {
			return of, holder, was, over
		}
	}
	return nil, "", "", false
}

// Know remembers the result of a trajectory that ended before this process began, by its session's key, so that its agent may post it again.
func (o *Online) Know(key string, result json.RawMessage) {
	o.begin()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settle(key, result)
}

// settled is how many results are remembered.
const settled = 4096

// settle remembers a result. mu is held.
func (o *Online) settle(key string, result []byte) {
	if _, known := o.over[key]; !known {
		o.order = append(o.order, key)
	}
	o.over[key] = string(result)
	if len(o.order) > settled {
		delete(o.over, o.order[0])
		o.order = o.order[1:]
	}
}

func refuse(w http.ResponseWriter, status int, text string) {
	_ = answer(w, status, map[string]any{"error": map[string]any{"message": text, "code": status}})
}

// refuseFor refuses with the status of an error of package dialects; another error is none of who asks.
func refuseFor(w http.ResponseWriter, err error) {
	status, text := http.StatusServiceUnavailable, err.Error()
	if refused := (*dialects.Error)(nil); errors.As(err, &refused) {
		status, text = refused.Status, refused.Message
	}
	refuse(w, status, text)
}

func answer(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(body)
	return errors.Join(err, http.NewResponseController(w).Flush())
}

// Close implements Runner.
func (o *Online) Close() error { return nil }
