package view

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/orchestrator/report"
)

//go:embed page/dist/index.html page/dist/main.js page/dist/main.css
var built embed.FS

// Options are those of a Server.
type Options struct {
	Key        string    // that a browser must give once; "": none, then only names of this machine are answered to
	ControlKey string    // that controlling runs takes where Key is ""; "": nobody can
	Decode     Decode    // the tokenizer of a run folder
	Errors     io.Writer // gets what net/http says of broken requests
}

// Decode makes the text of tokens of a run folder. found is false where the folder has no tokenizer yet: text then shows the ids.
type Decode func(dir string) (text func([]int32) string, found bool)

// Server answers the page and what it asks for. It is safe for concurrent use.
type Server struct {
	o      Options
	access access
	runs   *runs
	mux    *http.ServeMux
	quit   context.CancelFunc
	ended  <-chan struct{}
	beat   time.Duration // how often a stream tries what it could not open, and finds out that nobody reads
}

// New serves the run folder or the folder of run folders.
func New(dir string, o Options) (*Server, error) {
	ctx, quit := context.WithCancel(context.Background())
	r, err := openRuns(ctx, dir, o.Decode)
	if err != nil {
		quit()
		return nil, err
	}
	s := &Server{o: o, access: access{o.Key, o.ControlKey}, runs: r, mux: http.NewServeMux(), quit: quit, ended: ctx.Done(), beat: 15 * time.Second}
	for path, kind := range map[string]string{"/{$}": "index.html", "/main.js": "main.js", "/main.css": "main.css"} {
		s.mux.HandleFunc(path, s.file(kind))
	}
	for path, f := range map[string]func(*http.Request) (any, error){
		"/api/runs": s.list, "/api/metrics": s.metrics, "/api/curves": s.curves, "/api/bands": s.bands, "/api/values": s.values, "/api/now": s.now, "/api/trajectories": s.trajectories, "/api/trajectory": s.trajectory,
		"/api/step": s.step, "/api/tools": s.tools, "/api/tasks": s.tasks, "/api/differences": s.differences,
	} {
		s.mux.HandleFunc(path, answer(f))
	}
	s.mux.HandleFunc("/api/events", s.events)
	s.mux.HandleFunc(controlPath, s.control)
	s.mux.HandleFunc("/metrics", s.prometheus)
	return s, nil
}

// Close ends the streams, stops following runs and closes their stores.
func (s *Server) Close() error {
	s.quit()
	return s.runs.close()
}

// Serve answers on a listener, which it closes, until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	service := httpserver.Service{Handler: httpserver.Handler(s, httpserver.Options{}), Errors: s.o.Errors, Grace: 200 * time.Millisecond, Abort: s.quit}
	return service.Serve(ctx, l)
}

// policy lets the page load what this server serves and nothing else; no inline script or style runs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP refuses what does not come from a page of this server, and answers the rest.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.URL.Path != controlPath:
		h.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "this address only reads: use GET")
	case s.o.Key == "" && !httpserver.Loopback(hostOf(r.Host)):
		// A page elsewhere may have its name resolve to this machine (DNS rebinding). The browser then sends that name.
		fail(w, http.StatusForbidden, "the address must be localhost or 127.0.0.1; start with --api-key to use another name")
	case strings.HasPrefix(r.URL.Path, "/api/") && (r.Header.Get("Sec-Fetch-Site") == "cross-site" || r.Header.Get("Sec-Fetch-Site") == "same-site"):
		fail(w, http.StatusForbidden, "another site's page must not read runs")
	case s.access.welcome(w, r):
	case s.o.Key == "" || s.access.bears(r):
		s.mux.ServeHTTP(w, r)
	default:
		fail(w, http.StatusUnauthorized, "open the address that `agentfly view` printed, which has the key, or send Authorization: Bearer KEY")
	}
}

// hostOf is the host of an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // who does not read it needs no error
}

func (s *Server) file(name string) http.HandlerFunc {
	kinds := map[string]string{"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := built.ReadFile("page/dist/" + name)
		if err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", kinds[name[strings.LastIndexByte(name, '.')+1:]])
		_, _ = w.Write(body)
	}
}

// badRequest is an error of who asks.
type badRequest struct{ error }

// errMissing says that there is no such thing.
var errMissing = errors.New("there is no such run or trajectory")

func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		var bad badRequest
		switch {
		case err == nil:
		case errors.As(err, &bad):
			fail(w, http.StatusBadRequest, err.Error())
			return
		case errors.Is(err, errMissing):
			fail(w, http.StatusNotFound, err.Error())
			return
		case errors.Is(err, errGone):
			fail(w, http.StatusGone, err.Error())
			return
		default:
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		body, err := json.Marshal(v)
		if err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}
}

// list are the runs.
func (s *Server) list(r *http.Request) (any, error) {
	list, left, err := s.runs.list(r.Context())
	return map[string]any{"folder": s.runs.dir, "runs": list, "left": left}, err
}

// metrics explains them.
func (s *Server) metrics(*http.Request) (any, error) {
	return map[string]any{"curves": report.Curves(), "metrics": report.Glossary()}, nil
}

func (s *Server) run(r *http.Request) (*run, error) { return s.runs.get(r.URL.Query().Get("run")) }

// shownEvaluation is a point of the held-out curves.
type shownEvaluation struct {
	Name     string         `json:"name"`
	Step     int            `json:"step"`
	Reward   num            `json:"reward"`
	Accuracy num            `json:"accuracy"`
	Loss     *num           `json:"loss,omitempty"`       // of supervised fine-tuning, which has no reward
	KL       *num           `json:"reverse_kl,omitempty"` // of distillation
	Tasks    int            `json:"tasks"`
	Pass     map[string]num `json:"pass,omitempty"`
}

// curves are the metrics of a run whose keys are asked for, from a step on; without keys all names are told and no numbers. Where there are
// more steps than the points that are asked for, the curves are thinned (see thin), which the answer says.
func (s *Server) curves(r *http.Request) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	from, err := number(q, "from", 0)
	if err != nil {
		return nil, err
	}
	points, err := number(q, "points", 0)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	first, _ := slices.BinarySearch(x.steps, from)
	steps, thinned := slices.Clone(x.steps[first:]), points > 0 && len(x.steps)-first > points
	if thinned {
		steps = thinSteps(steps, points)
	}
	series := map[string]column{}
	for _, key := range q["key"] {
		switch c := x.columns[key]; {
		case c == nil:
		case thinned:
			series[key] = thin(c[first:], points)
		default:
			series[key] = slices.Clone(c[first:])
		}
	}
	names := []string{}
	for key := range x.columns {
		names = append(names, key)
	}
	evals := []shownEvaluation{}
	for _, e := range x.evals {
		v := shownEvaluation{Name: e.Name, Step: e.Step, Reward: num(e.Reward), Accuracy: num(e.Accuracy), Loss: (*num)(e.Loss), KL: (*num)(e.ReverseKL), Tasks: e.Tasks, Pass: map[string]num{}}
		if e.Unscored {
			v.Reward = num(math.NaN())
		}
		for k, p := range e.Pass {
			v.Pass[k] = num(p)
			if key := "eval/pass/" + k; !slices.Contains(names, key) {
				names = append(names, key)
			}
		}
		evals = append(evals, v)
	}
	if steps == nil {
		steps = []int{}
	}
	return map[string]any{"steps": steps, "total": len(x.steps), "thinned": thinned, "series": series, "names": names, "evaluations": evals, "state": x.state()}, nil
}

// bands are the metrics of several runs together whose keys are asked for, thinned as curves are. A run that cannot be read keeps no other back.
func (s *Server) bands(r *http.Request) (any, error) {
	q := r.URL.Query()
	points, err := number(q, "points", 0)
	if err != nil {
		return nil, err
	}
	var runs []table
	for _, name := range q["run"] {
		if x, err := s.runs.get(name); err == nil {
			runs = append(runs, x.table(q["key"]))
		}
	}
	if len(runs) == 0 {
		return nil, errMissing
	}
	steps, series := bands(runs, q["key"])
	if points > 0 && len(steps) > points {
		for key, b := range series {
			series[key] = b.thin(points)
		}
		steps = thinSteps(steps, points)
	}
	if steps == nil {
		steps = []int{}
	}
	return map[string]any{"steps": steps, "series": series}, nil
}

// shownValue is what a metric is at a step, or at the last one before it that has a value.
type shownValue struct {
	Step  int `json:"step"`
	Value num `json:"value"`
}

// values are those of the metrics at a step: what a thinned curve does not tell.
func (s *Server) values(r *http.Request) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	step, err := number(r.URL.Query(), "step", math.MaxInt)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	at, have := slices.BinarySearch(x.steps, step)
	if have {
		at++
	}
	out := map[string]shownValue{}
	for _, key := range r.URL.Query()["key"] {
		for i := min(at, len(x.columns[key])) - 1; i >= 0; i-- {
			if v := x.columns[key][i]; finite(v) {
				out[key] = shownValue{x.steps[i], num(v)}
				break
			}
		}
	}
	return map[string]any{"values": out}, nil
}

// state is what a page shows of how a run stands. The caller holds the lock.
func (x *run) state() map[string]any {
	return map[string]any{
		"run": x.name, "steps": len(x.steps), "evaluations": len(x.evals), "trajectories": len(x.index.entries), "loaded": x.loaded,
		"damaged": x.damaged, "unread": x.index.unread, "fault": x.fault, "revision": x.revision, "edition": x.edition,
	}
}

// number reads a parameter.
func number(q url.Values, name string, otherwise int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, badRequest{fmt.Errorf("%s is %q, it must be a whole number", name, text)}
	}
	return n, nil
}

// parse reads a filter.
func parse(q url.Values) (f filter, err error) {
	f = filter{
		Phase: q.Get("phase"), Task: q.Get("task"), Tool: q.Get("tool"), Cause: q.Get("cause"), Stop: q.Get("stop"), Origin: q.Get("origin"),
		Ended: q.Get("ended") == "1", Failed: q.Get("failed") == "1", FailedCall: q.Get("failed_call") == "1", GoodCalls: q.Get("failed_call") == "0", Text: q.Get("text"), Sort: q.Get("sort"), Ascending: q.Get("order") == "up",
	}
	if f.Sort == "" {
		f.Sort = "step"
	}
	if sorts[f.Sort] == nil {
		return f, badRequest{fmt.Errorf("sort is %q, there is no such order", f.Sort)}
	}
	for name, to := range map[string]*int{"from": &f.From, "to": &f.To, "group": &f.Group, "stale": &f.MinStale} {
		otherwise := 0
		switch name {
		case "group":
			otherwise = -1
		case "from":
			otherwise = -1 << 30 // the evaluation before training stands at step -1
		}
		if *to, err = number(q, name, otherwise); err != nil {
			return f, err
		}
	}
	f.RewardMin, f.RewardMax = -1e308, 1e308
	for name, to := range map[string]*float64{"min": &f.RewardMin, "max": &f.RewardMax} {
		if text := q.Get(name); text != "" {
			if *to, err = strconv.ParseFloat(text, 64); err != nil || *to != *to {
				return f, badRequest{fmt.Errorf("%s is %q, it must be a number", name, text)}
			}
			f.HasReward = true
		}
	}
	return f, nil
}

// pageSize is how many entries a page has at most.
const pageSize = 200

// trajectories are a page of those that a filter keeps, and what there is to filter by.
func (s *Server) trajectories(r *http.Request) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	x.asked()
	q := r.URL.Query()
	f, err := parse(q)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	found := x.index.find(f, x.tasksWith(f.Text))
	var after *entry
	if id := q.Get("after"); id != "" {
		at, ok := x.index.place[id]
		if !ok {
			return nil, errGone
		}
		after = x.index.entries[at]
	}
	rows := []shownEntry{}
	for _, e := range page(found, after, f.order(), pageSize) {
		rows = append(rows, e.shown())
	}
	out := map[string]any{"total": len(found), "rows": rows, "state": x.state()}
	if after == nil {
		sum, n := 0.0, 0
		for _, e := range found {
			if e.scored() {
				sum, n = sum+e.Reward, n+1
			}
		}
		if n > 0 {
			out["mean"] = num(sum / float64(n))
		}
		out["choices"] = x.index.choices()
	}
	return out, nil
}

// trajectory is one, whole.
func (s *Server) trajectory(r *http.Request) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	x.asked()
	id := r.URL.Query().Get("id")
	record, err := x.db.Record(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, errMissing
	}
	x.mu.Lock()
	var e *entry
	if at, ok := x.index.place[id]; ok {
		e = x.index.entries[at]
	} else { // the index has not come to it yet
		e = newEntry(record.Phase, record.Trajectory, &x.index.names)
		x.index.train(e)
		x.index.score(e)
	}
	siblings := []shownEntry{}
	var same []*entry // that tried its task
	for _, o := range x.index.entries {
		if o.Task != e.Task {
			continue
		}
		same = append(same, o)
		if o.Phase == e.Phase && o.Step == e.Step && o.Group == e.Group {
			siblings = append(siblings, o.shown())
		}
	}
	ended := x.evals.Ended(e.Phase, e.Step)
	x.mu.Unlock()
	out := shown(record, e, x.text())
	sortEntries(siblings)
	out.Siblings, out.Tries, out.Ended = siblings, tries(same), ended
	return out, nil
}

// step says what is unusual about a step.
func (s *Server) step(r *http.Request) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	n, err := number(r.URL.Query(), "step", 0)
	if err != nil {
		return nil, err
	}
	span, err := number(r.URL.Query(), "span", usualSpan)
	if err != nil {
		return nil, err
	}
	if span < 1 {
		return nil, badRequest{fmt.Errorf("span is %d, it must be 1 or more", span)}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return map[string]any{"step": n, "changes": x.changes(n), "drawn": x.index.drawn(n, span), "ends": x.index.ends(n, span)}, nil
}

// tools sums up the calls of the trajectories that a filter keeps.
func (s *Server) tools(r *http.Request) (any, error) {
	return s.sum(r, func(x *run, found []*entry) any {
		tools := toolsOf(found)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.index.trends(tools)
		return map[string]any{"tools": tools}
	})
}

// tasks compares how tasks went before a step and from it on.
func (s *Server) tasks(r *http.Request) (any, error) {
	split, err := number(r.URL.Query(), "split", 0)
	if err != nil {
		return nil, err
	}
	return s.sum(r, func(x *run, found []*entry) any {
		x.mu.Lock()
		evals := x.evals
		x.mu.Unlock()
		return map[string]any{"trained": trainedChanges(found, split), "held_out": heldOutChanges(found, evals)}
	})
}

func (s *Server) sum(r *http.Request, f func(x *run, found []*entry) any) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	x.asked()
	by, err := parse(r.URL.Query())
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	found := x.index.find(by, x.tasksWith(by.Text))
	x.mu.Unlock()
	return f(x, found), nil
}

// How often a stream tells how a run stands: a page that draws more often takes time from a run on the same machine.
const (
	soon  = 2 * time.Second  // after a step, an evaluation, or while trajectories are read
	quiet = 10 * time.Second // where no more than trajectories came
)

// mark is what a stream last told of a run.
type mark struct {
	revision, steps, evaluations int
	edition                      int64
	loaded                       bool
	fault                        string
	at                           time.Time
}

func (x *run) mark() mark {
	return mark{x.revision, len(x.steps), len(x.evals), x.edition, x.loaded, x.fault, time.Now()}
}

// due is how long a run that now stands at m is not to be told of anew; negative where nothing changed.
func (told mark) due(m mark) time.Duration {
	switch {
	case m.revision == told.revision:
		return -1
	case m.steps != told.steps || m.evaluations != told.evaluations || m.edition != told.edition || m.fault != told.fault || !m.loaded || !told.loaded:
		return 0
	}
	return max(0, quiet-m.at.Sub(told.at))
}

// events is a stream that tells of changes: how each run that is named stands. Who connects anew misses nothing. A run that cannot be opened keeps no
// other back, and is told of once it can be.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	var all []*run
	missing := r.URL.Query()["run"]
	open := func() {
		missing = slices.DeleteFunc(missing, func(name string) bool {
			x, err := s.runs.get(name)
			if err == nil {
				all = append(all, x)
			}
			return err == nil
		})
	}
	open()
	if len(all) == 0 {
		fail(w, http.StatusNotFound, errMissing.Error())
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	told := map[*run]mark{}
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	for {
		news := s.runs.news()
		var out []map[string]any
		var later <-chan time.Time // when one that has changed is due
		wait := quiet
		for _, x := range all {
			select {
			case <-x.over: // who asks anew is told of the run that took its place
				return
			default:
			}
			x.mu.Lock()
			now := x.mark()
			before, ok := told[x]
			if due := before.due(now); !ok || due == 0 {
				told[x] = now
				out = append(out, x.state())
			} else if due > 0 && due <= wait {
				wait, later = due, time.After(due)
			}
			x.mu.Unlock()
		}
		if len(out) > 0 {
			body, err := json.Marshal(out)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", body); err != nil {
				return
			}
		}
		if err := stream.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ended:
			return
		case <-beat.C:
			open()
			// The write finds out that nobody reads any more.
			if _, err := io.WriteString(w, ": still here\n\n"); err != nil {
				return
			}
		case <-later:
		case <-news:
			select {
			case <-time.After(soon):
			case <-r.Context().Done():
				return
			case <-s.ended:
				return
			}
		}
	}
}
