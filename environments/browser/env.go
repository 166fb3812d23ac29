package browser

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

//go:embed page.js
var look string

// world is a browser with one page.
type world struct {
	s       *source
	browser context.Context // chromedp's handle of the browser, and of the empty tab that it began with
	end     func()          // of the browser
	tab     context.Context // chromedp's handle of the page; calls get contexts below it
	close   func()          // the page
	cmd     *exec.Cmd
	folder  string
	task    string
	seen    view
	steps   int
}

// view is what page.js found.
type view struct {
	Task     string    `json:"task"`
	Lines    []string  `json:"lines"`
	Elements []element `json:"elements"`
	Done     bool      `json:"done"`
	Raw      float64   `json:"raw"`
	Reason   string    `json:"reason"`
}

type element struct {
	Ref     int      `json:"ref"`
	Role    string   `json:"role"`
	Name    string   `json:"name"`
	X       float64  `json:"x"`
	Y       float64  `json:"y"`
	Checked bool     `json:"checked"`
	Value   string   `json:"value"`
	Options []string `json:"options"`
}

var (
	_ environments.Environment = (*world)(nil)
	_ environments.Chooser     = (*world)(nil)
	_ environments.Solver      = (*world)(nil)
	_ environments.Checker     = (*world)(nil)
	_ environments.Sweeper     = (*source)(nil)
	_ environments.Tasker      = (*source)(nil)
)

// New starts a browser.
func (s *source) New(ctx context.Context, owner string) (environments.Environment, error) {
	folder, err := os.MkdirTemp(base(), profiles+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	w := &world{s: s, folder: folder}
	if err := os.WriteFile(filepath.Join(folder, "owner"), []byte(owner), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	options := append(
		slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(s.chromium), chromedp.UserDataDir(filepath.Join(folder, "profile")),
		chromedp.Env("TMPDIR="+folder), // where it leaves folders of its own
		chromedp.NoSandbox,             // as root there is none, and the pages are files of a package
		chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("no-zygote", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.ModifyCmdFunc(func(c *exec.Cmd) { alone(c); w.cmd = c }),
	)
	silent := func(string, ...any) {}
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.WithoutCancel(ctx), options...)
	browser, end := chromedp.NewContext(allocator, chromedp.WithLogf(silent), chromedp.WithErrorf(silent))
	w.browser, w.tab, w.close = browser, browser, func() {}
	w.end = func() { end(); cancelAllocator() }
	if err := w.open(ctx, browser, end); err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not start: %w", s.chromium, err), w.Close())
	}
	return w, nil
}

// open makes the first call with a handle: it opens the tab, which ends with the context of that call, and the browser where there is none.
func (w *world) open(ctx, tab context.Context, cancel func()) error {
	opened := make(chan error, 1)
	go func() { opened <- chromedp.Do(tab, chromedp.EmulateViewport(int64(w.s.p.Width), int64(w.s.p.Height))) }()
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		cancel()
		<-opened
		return ctx.Err()
	}
}

// renew gives an episode a page of its own: cookies, storage and the history of the tab end with the one before.
func (w *world) renew(ctx context.Context) error {
	w.close()
	w.tab, w.close = chromedp.NewContext(w.browser, chromedp.WithNewBrowserContext())
	return w.open(ctx, w.tab, w.close)
}

// within is a context for one call of the page, which ends with ctx.
func (w *world) within(ctx context.Context) (context.Context, func()) {
	own, cancel := context.WithCancel(w.tab)
	stop := context.AfterFunc(ctx, cancel)
	return own, func() { stop(); cancel() }
}

func (w *world) do(ctx context.Context, steps ...chromedp.Action[chromedp.Void]) error {
	own, end := w.within(ctx)
	defer end()
	err := chromedp.Do(own, steps...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func evaluate[T any](ctx context.Context, w *world, script string) (T, error) {
	own, end := w.within(ctx)
	defer end()
	out, err := chromedp.Run(own, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	return out, err
}

// begin starts the episode of a page that is loaded: the seed before the problem, no end by the clock, no animations.
const begin = `new Promise((done, fail) => {
  const late = Date.now() + 20000;
  const ready = () => typeof core === 'object' && document.readyState === 'complete' && core.cover_div != null;
  const wait = (what, then) => { if (what()) then(); else if (Date.now() > late) fail(new Error('the page is not ready')); else setTimeout(() => wait(what, then), 5); };
  wait(ready, () => {
    if (window.jQuery) jQuery.fx.off = true;
    core.EPISODE_MAX_TIME = 1e9; Math.seedrandom(%d); core.startEpisodeReal();
    wait(() => WOB_TASK_READY, () => requestAnimationFrame(() => done(true)));
  });
})`

func (w *world) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	var fields struct {
		Task string `json:"task"`
		Seed any    `json:"seed"`
	}
	if err := environments.DecodeTask(s, []string{"task", "seed"}, &fields); err != nil {
		return nil, err
	}
	if fields.Task == "" {
		fields.Task = w.s.p.Tasks[int(s.Seed)%len(w.s.p.Tasks)]
	}
	if !slices.Contains(w.s.p.Tasks, fields.Task) {
		return nil, environments.WrongTask("the task %q is none of the job's; they are %s", wording.Clip(fields.Task, 64), strings.Join(w.s.p.Tasks, ", "))
	}
	seed := s.Seed
	if n, err := strconv.ParseInt(fmt.Sprint(fields.Seed), 10, 32); err == nil && n >= 0 {
		seed = n
	} else if f, ok := fields.Seed.(float64); ok && f >= 0 && f < 1<<31 {
		seed = int64(f)
	}
	w.task, w.steps = fields.Task, 0
	if err := w.renew(ctx); err != nil {
		return nil, fmt.Errorf("a page for %s: %w", fields.Task, err)
	}
	if err := w.do(ctx, chromedp.Navigate(w.s.url+fields.Task+".html")); err != nil {
		return nil, fmt.Errorf("the page %s: %w", fields.Task, err)
	}
	if _, err := evaluate[bool](ctx, w, fmt.Sprintf(begin, seed)); err != nil {
		return nil, fmt.Errorf("the page %s: %w", fields.Task, err)
	}
	if err := w.look(ctx); err != nil {
		return nil, err
	}
	return w.show(ctx, "")
}

// look reads the page.
func (w *world) look(ctx context.Context) (err error) {
	w.seen, err = evaluate[view](ctx, w, look)
	if err != nil {
		err = fmt.Errorf("the page %s cannot be read: %w", w.task, err)
	}
	return err
}

// show is what the agent sees of the page.
func (w *world) show(ctx context.Context, before string) (environments.Observation, error) {
	text := "Task: " + w.seen.Task
	if w.s.p.Observe != "screenshot" {
		text += "\n" + strings.Join(w.seen.Lines, "\n")
	}
	if before != "" {
		text = before + "\n" + text
	}
	o := environments.Text(text)
	if w.s.p.Observe == "text" {
		return o, nil
	}
	own, end := w.within(ctx)
	defer end()
	png, err := chromedp.Run(own, chromedp.CaptureScreenshot())
	if err != nil {
		return nil, fmt.Errorf("a picture of the page %s: %w", w.task, err)
	}
	return append(o, trajectory.Part{Type: "image", Image: "data:image/png;base64," + base64.StdEncoding.EncodeToString(png)}), nil
}

// arguments are those of all tools.
type arguments struct {
	Ref  *int     `json:"ref"`
	X    *float64 `json:"x"`
	Y    *float64 `json:"y"`
	Text string   `json:"text"`
	Key  string   `json:"key"`
	Down int      `json:"down"`
}

const mostText = 10_000 // characters that are typed at once

// keys are those that press knows beside characters.
var keys = map[string]string{
	"Enter": kb.Enter, "Tab": kb.Tab, "Backspace": kb.Backspace, "Delete": kb.Delete, "Escape": kb.Escape, "ArrowUp": kb.ArrowUp, "ArrowDown": kb.ArrowDown,
	"ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "Home": kb.Home, "End": kb.End, "PageUp": kb.PageUp, "PageDown": kb.PageDown, "Space": " ",
}

func (w *world) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	w.steps++
	wrong, err := w.act(ctx, a)
	if err != nil {
		return environments.Result{}, err
	}
	if wrong == "" {
		if _, err := evaluate[bool](ctx, w, "new Promise(f => requestAnimationFrame(() => setTimeout(() => f(true), 0)))"); err != nil {
			return environments.Result{}, err
		}
		if err := w.look(ctx); err != nil {
			return environments.Result{}, err
		}
	}
	r := environments.Result{}
	if wrong != "" {
		r.Failure = trajectory.FailurePolicy
	}
	if r.Terminated = w.seen.Done; r.Terminated {
		r.Reward, r.Success = reward(w.seen.Raw), w.seen.Raw >= 1
		r.Info = map[string]any{"raw": w.seen.Raw, "success": r.Success, "reason": w.seen.Reason}
		r.Observation = environments.Text(map[bool]string{true: "The task is done.", false: "The task failed."}[r.Success])
		return r, nil
	}
	r.Truncated = w.steps >= w.s.p.MaxSteps
	r.Observation, err = w.show(ctx, wrong)
	r.Anchor = w.task + "\n" + strings.Join(w.seen.Lines, "\n")
	return r, err
}

// act does what the agent asks for. wrong is what it reads of an action that is not possible.
func (w *world) act(ctx context.Context, a environments.Action) (wrong string, err error) {
	var args arguments
	if err := json.Unmarshal(a.Arguments, &args); err != nil {
		return "The arguments are no JSON object.", nil
	}
	var at *element
	if args.Ref != nil {
		if *args.Ref < 1 || *args.Ref > len(w.seen.Elements) {
			return fmt.Sprintf("There is no element [%d].", *args.Ref), nil
		}
		at = &w.seen.Elements[*args.Ref-1]
	}
	switch a.Name {
	case "click":
		if at == nil && (args.X == nil || args.Y == nil) {
			return "click needs ref, or x and y.", nil
		}
		if at == nil {
			if *args.X < 0 || *args.Y < 0 || *args.X >= float64(w.s.p.Width) || *args.Y >= float64(w.s.p.Height) {
				return fmt.Sprintf("The page is %d wide and %d high.", w.s.p.Width, w.s.p.Height), nil
			}
			return "", w.do(ctx, chromedp.MouseClickXY(*args.X, *args.Y))
		}
		return w.click(ctx, at.Ref)
	case "type":
		if at == nil {
			return "type needs ref.", nil
		}
		return w.write(ctx, at, args.Text)
	case "press":
		key, ok := keys[args.Key]
		if !ok && utf8.RuneCountInString(args.Key) == 1 && args.Key >= " " && utf8.ValidString(args.Key) {
			key, ok = args.Key, true
		}
		if !ok {
			return fmt.Sprintf("There is no key %q; keys are a character, Enter, Tab, Backspace, Delete, Escape, Space, Home, End, ArrowUp, ArrowDown, ArrowLeft, ArrowRight, PageUp and PageDown.", wording.Clip(args.Key, 40)), nil
		}
		return "", w.do(ctx, chromedp.KeyEvent(key))
	case "scroll":
		target := "document.scrollingElement"
		if at != nil {
			target = fmt.Sprintf("window.agentflyRefs[%d]", at.Ref-1)
		}
		_, err := evaluate[bool](ctx, w, fmt.Sprintf("(() => { let e = %s; while (e && e.parentElement && e.scrollHeight <= e.clientHeight) e = e.parentElement; (e || document.scrollingElement).scrollBy(0, %d); return true })()", target, max(-100_000, min(100_000, args.Down))))
		return "", err
	}
	return "There is no such action; the actions are click, type, press and scroll.", nil
}

// click clicks in the middle of an element, where it is seen after it was scrolled there.
func (w *world) click(ctx context.Context, ref int) (wrong string, err error) {
	place, err := evaluate[[]float64](ctx, w, fmt.Sprintf(`(() => { const e = window.agentflyRefs[%d]; if (!e.isConnected) return [];
		const inside = (r) => r.top + r.height / 2 >= 0 && r.top + r.height / 2 < innerHeight && r.left + r.width / 2 >= 0 && r.left + r.width / 2 < innerWidth;
		let r = e.getBoundingClientRect(); if (!inside(r)) { e.scrollIntoView({block: 'center'}); r = e.getBoundingClientRect(); }
		return [r.left + r.width / 2, r.top + r.height / 2] })()`, ref-1))
	if err != nil {
		return "", err
	}
	if len(place) != 2 {
		return fmt.Sprintf("The element [%d] is gone.", ref), nil
	}
	return "", w.do(ctx, chromedp.MouseClickXY(place[0], place[1]))
}

// write puts a text in an element in place of what is there, as one would: it clicks on it, selects all and types.
func (w *world) write(ctx context.Context, at *element, text string) (wrong string, err error) {
	switch {
	case at.Role == "list":
		i := slices.Index(at.Options, strings.TrimSpace(text))
		if i < 0 {
			return fmt.Sprintf("The list [%d] has no option %q.", at.Ref, wording.Clip(text, 60)), nil
		}
		_, err := evaluate[bool](ctx, w, fmt.Sprintf(`(() => { const e = window.agentflyRefs[%d]; e.focus(); e.selectedIndex = %d;
			for (const n of ['input', 'change']) e.dispatchEvent(new Event(n, {bubbles: true})); return true })()`, at.Ref-1, i))
		return "", err
	case at.Role != "textbox" && at.Role != "password":
		return fmt.Sprintf("The element [%d] is no textbox and no list.", at.Ref), nil
	case len(text) > mostText || !utf8.ValidString(text):
		return fmt.Sprintf("The text is too long; at most %d characters are typed at once.", mostText), nil
	}
	if wrong, err = w.click(ctx, at.Ref); wrong != "" || err != nil {
		return wrong, err
	}
	_, err = evaluate[bool](ctx, w, fmt.Sprintf("(() => { const e = window.agentflyRefs[%d]; if (e.select) e.select(); return true })()", at.Ref-1))
	if err != nil {
		return "", err
	}
	if text == "" {
		return "", w.do(ctx, chromedp.KeyEvent(kb.Delete))
	}
	own, end := w.within(ctx)
	defer end()
	_, err = chromedp.Call(own, input.InsertText, input.InsertTextParams{Text: text})
	return "", err
}

// Actions are clicks on all elements, and the words of the task typed into all fields.
func (w *world) Actions(context.Context) (out []string, err error) {
	add := func(name string, args map[string]any) {
		b, e := json.Marshal(map[string]any{"name": name, "arguments": args})
		err = errors.Join(err, e)
		out = append(out, string(b))
	}
	for _, e := range w.seen.Elements {
		switch e.Role {
		case "textbox", "password":
			for _, word := range quoted(w.seen.Task) {
				add("type", map[string]any{"ref": e.Ref, "text": word})
			}
		case "list":
			for _, option := range e.Options {
				add("type", map[string]any{"ref": e.Ref, "text": option})
			}
			continue
		}
		add("click", map[string]any{"ref": e.Ref})
	}
	if len(out) == 0 {
		add("press", map[string]any{"key": "Tab"})
	}
	return out, err
}

// Check asks the page for an answer.
func (w *world) Check(ctx context.Context) error {
	_, err := evaluate[int](ctx, w, "1")
	return err
}

// Kill ends the browser at once, as a crash would.
func (w *world) Kill() { endAll(w.cmd) }

// Close ends the browser with all that it started, and removes its folder.
func (w *world) Close() error {
	if w.cmd != nil && w.cmd.Process != nil {
		endAll(w.cmd)
	}
	w.close()
	w.end()
	var err error
	for range 50 { // what is being killed may still write
		if err = os.RemoveAll(w.folder); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
