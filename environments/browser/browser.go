// Package browser is kind browser: the pages of MiniWoB++ (arXiv 1802.08802, MIT), small tasks on web pages, in a real Chromium over the DevTools
// protocol. Each environment is a browser of its own, headless, in a process group that is killed with it; the pages come from a server of this
// process, and no other host can be reached. The agent sees the visible elements as lines of text, a picture, or both, and clicks, types, presses keys
// and scrolls.
//
// A browser of its own takes some 170 MB more for each environment, and a tab of one shared browser 75 MB; a click takes the same time, 6 ms. Each has its
// own, because one that hangs, crashes or is killed then takes no other with it. Each episode has a browser context and a page of its own in it, which
// takes a reset from 0.05 s to 0.3 s.
//
// It does not lend environments or hold deadlines: package environments does.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Params are those of kind browser.
type Params struct {
	Tasks       []string `json:"tasks"`        // pages by their names: click-test, login-user; default the solved ones
	Observe     string   `json:"observe"`      // text (the default), screenshot or both
	MaxSteps    int      `json:"max_steps"`    // default 15
	Width       int      `json:"width"`        // of the page in pixels; default 160
	Height      int      `json:"height"`       // default 210
	Chromium    string   `json:"chromium"`     // the program; default the one on PATH
	Pages       string   `json:"pages"`        // the folder html of the package; default that of interpreter
	Interpreter string   `json:"interpreter"`  // a Python with the package; default python3
	Instruction *string  `json:"instructions"` // in place of what the agent is told
}

const instructions = `You use a web page to do the task that is given. Each element stands on a line with its number in brackets and its place (x,y). The actions are click, type, press and scroll.`

// Kind is the kind "browser".
func Kind() environments.Kind {
	return environments.Kind{Name: "browser", Description: "MiniWoB++'s web tasks in a real Chromium (tasks, observe)", New: open}
}

// source has the pages and their server.
type source struct {
	p        Params
	chromium string
	url      string
	server   *http.Server
	served   chan struct{}
}

func open(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{Observe: "text", MaxSteps: 15, Width: 160, Height: 210}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains([]string{"text", "screenshot", "both"}, p.Observe):
		return nil, fmt.Errorf("observe: %q is not known; allowed: text, screenshot, both", p.Observe)
	case p.MaxSteps < 1:
		return nil, errors.New("max_steps must be above 0; leave it out for the default")
	case p.Width < 100 || p.Width > 4000 || p.Height < 100 || p.Height > 4000:
		return nil, errors.New("width and height must be 100 to 4000; leave them out for the defaults")
	}
	if len(p.Tasks) == 0 {
		p.Tasks = solved()
	}
	if err := r.Run("Chromium"); err != nil {
		return nil, err
	}
	for _, program := range []*string{&p.Chromium, &p.Interpreter} {
		var err error
		if *program, err = r.Program(*program); err != nil {
			return nil, err
		}
	}
	chromium, err := findChromium(p.Chromium)
	if err != nil {
		return nil, err
	}
	folder, err := findPages(ctx, r, p)
	if err != nil {
		return nil, err
	}
	pages := os.DirFS(folder)
	for _, name := range p.Tasks {
		if _, err := fs.Stat(pages, "miniwob/"+name+".html"); err != nil || strings.Contains(name, "/") {
			return nil, fmt.Errorf("there is no task %q%s; the tasks are the pages in %s", wording.Clip(name, 64), wording.DidYouMean(name, names(pages)), filepath.Join(folder, "miniwob"))
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the server of the pages: %w", err)
	}
	s := &source{p: p, chromium: chromium, url: "http://" + l.Addr().String() + "/miniwob/", served: make(chan struct{})}
	s.server = &http.Server{Handler: http.FileServerFS(pages), ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(l) // until Close
	}()
	return s, nil
}

func findChromium(named string) (string, error) {
	for _, name := range []string{named, "chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		if named != "" {
			return "", fmt.Errorf("chromium: there is no program %s; leave it out for the one on PATH, or install one: apt-get install chromium", named)
		}
	}
	return "", errors.New("chromium is missing; install it: apt-get install chromium")
}

// findPages is the folder html of the Python package, which is not imported: it would import Selenium.
func findPages(ctx context.Context, r *resources.Resources, p Params) (string, error) {
	if p.Pages != "" {
		folder, err := r.Whole(p.Pages)
		if err == nil {
			_, err = os.Stat(filepath.Join(folder, "core", "core.js"))
		}
		if err != nil {
			return "", fmt.Errorf("pages: %s is not the folder html of miniwob: it has no core/core.js", p.Pages)
		}
		return folder, nil
	}
	python := p.Interpreter
	if python == "" {
		python = "python3"
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	const find = "import importlib.util as u,sys; s=u.find_spec('miniwob'); print(s.submodule_search_locations[0] if s else '')"
	out, err := exec.CommandContext(ctx, python, "-c", find).Output()
	if err != nil {
		return "", fmt.Errorf("%s, which is asked where the pages are: %w", python, err)
	}
	folder := strings.TrimSpace(string(out))
	if folder == "" {
		return "", fmt.Errorf("the package miniwob is missing; install it: %s -m pip install miniwob==1.1.*", python)
	}
	return filepath.Join(folder, "html"), nil
}

func names(pages fs.FS) (out []string) {
	files, _ := fs.Glob(pages, "miniwob/*.html")
	for _, f := range files {
		out = append(out, strings.TrimSuffix(filepath.Base(f), ".html"))
	}
	return out
}

func (s *source) Spec() environments.Spec {
	told := instructions
	if s.p.Instruction != nil {
		told = *s.p.Instruction
	}
	schema := func(name, text, properties, required string) tools.Spec {
		return tools.Spec{Name: name, Description: text, Stateful: true, Parameters: json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":[` + required + `],"additionalProperties":false}`)}
	}
	const ref = `"ref":{"type":"integer","description":"number of the element"}`
	return environments.Spec{
		Instructions: told, Deterministic: true, Tools: []tools.Spec{
			schema("click", "clicks on an element, or at a place of the page", ref+`,"x":{"type":"number"},"y":{"type":"number"}`, ""),
			schema("type", "writes into an element in place of what is there; of a list, chooses the option", ref+`,"text":{"type":"string"}`, `"ref","text"`),
			schema("press", "presses a key", `"key":{"type":"string","description":"Enter, Tab, Backspace, ArrowDown, Escape or a character"}`, `"key"`),
			schema("scroll", "scrolls an element, or the page", ref+`,"down":{"type":"integer","description":"pixels; negative is up"}`, `"down"`),
		},
	}
}

const evalSeeds = 1 << 30 // where the seeds of held-out tasks begin

// Tasks are the pages in turn, each with a seed of its own.
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	first := 0
	switch {
	case split == environments.Eval:
		first = evalSeeds
	case split != environments.Train:
		return nil, fmt.Errorf("there is no split %q; the splits are %s and %s", wording.Clip(split, 64), environments.Train, environments.Eval)
	}
	if n > evalSeeds {
		return nil, fmt.Errorf("%d tasks were asked for; a split has %d", n, evalSeeds)
	}
	out := make([]trajectory.Task, n)
	for i := range out {
		name := s.p.Tasks[i%len(s.p.Tasks)]
		seed := first + i/len(s.p.Tasks)
		out[i] = trajectory.Task{ID: name + "-" + strconv.Itoa(seed), Fields: map[string]any{"task": name, "seed": seed}}
	}
	return out, nil
}

func (s *source) Close() error {
	err := s.server.Close()
	<-s.served
	return err
}

// profiles is how the folders of browsers are named: with the process that started them.
const profiles = "agentfly-browser-"

// base is where these folders are: the folder for temporary files, or /tmp where its name is so long that the browser's socket could not lie below
// it, whose path has 107 bytes at most.
func base() string {
	const most = 28
	if dir := os.TempDir(); len(dir) <= most || runtime.GOOS == "windows" {
		return dir
	}
	return "/tmp"
}

// Sweep removes the folders of browsers whose process was killed; the browsers ended with it.
func (s *source) Sweep(_ context.Context, owner string) (removed []string, err error) {
	found, err := filepath.Glob(filepath.Join(base(), profiles+"*"))
	for _, folder := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), profiles), "-")
		n, e := strconv.Atoi(pid)
		label, read := os.ReadFile(filepath.Join(folder, "owner"))
		if e != nil || n <= 0 || alive(n) || read != nil || string(label) != owner {
			continue
		}
		if e := os.RemoveAll(folder); e != nil {
			err = errors.Join(err, e)
			continue
		}
		removed = append(removed, folder)
	}
	return removed, err
}

// reward is what the page's own, from -1 to 1, is worth: what failed is worth nothing.
func reward(raw float64) float64 {
	if math.IsNaN(raw) {
		return 0
	}
	return min(1, max(0, raw))
}
