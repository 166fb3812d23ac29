// Package gpython runs Python files without Python: it is the worker of runtime gpython, in a process of its own, because gpython can
// neither be interrupted nor survive an endless recursion. It speaks the package protocol.
//
// It does not know what the functions are for, and it does not start itself: package python starts and ends workers.
package gpython

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-python/gpython/py"
	_ "github.com/go-python/gpython/stdlib" // its modules, and the compiler

	"github.com/agentfly/agentfly/internal/sysmon"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python/protocol"
)

// Argument is the first of a command line that starts a worker; the second is its memory in bytes, 0 for no limit.
const Argument = "-gpython-worker"

// Main is a worker when args, with the program's name, say so: then it does not return. Call it before anything else in a program that
// loads Python files.
func Main(args []string) {
	if len(args) != 3 || args[1] != Argument {
		return
	}
	sysmon.KeepAwake()
	memory, err := strconv.ParseInt(args[2], 10, 64)
	if err == nil {
		err = serve(os.Stdin, os.Stdout, memory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpython:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve answers requests in their order. A call cannot be interrupted: whoever cancels it must kill the process. It ends with its input,
// also while a call runs.
func serve(in io.Reader, out io.Writer, memory int64) error {
	requests := make(chan protocol.Request)
	go func() {
		d := json.NewDecoder(bufio.NewReaderSize(in, 64<<10))
		for {
			var r protocol.Request
			if err := d.Decode(&r); err != nil {
				os.Exit(0) // the other side is gone
			}
			if r.Op != "cancel" {
				requests <- r
			}
		}
	}()
	answers := json.NewEncoder(out)
	answers.SetEscapeHTML(false)
	f := &file{entries: map[string]*entry{}, contexts: map[string]*context{}}
	if err := limit(memory); err != nil {
		return err
	}
	for r := range requests {
		var a protocol.Reply
		switch r.Op {
		case "load":
			a = f.load(r.File, r.Source)
		case "call":
			a = f.call(r)
		case "end":
			f.end(r.Trajectory)
		}
		a.ID = r.ID
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// entry is a function that can be called.
type entry struct {
	kind, name string
	target     *py.Function
	options    map[string]any
	injected   []string
	rest       string // the name of **kwargs; "": there are none
}

func (e *entry) stateful() bool { return e.options["stateful"] == true }

// file is the loaded file with what belongs to its trajectories.
type file struct {
	path     string
	lines    []string
	program  program
	tokens   []token // of the program
	declared []*entry
	entries  map[string]*entry
	contexts map[string]*context
	current  *context
}

func (f *file) load(path, source string) (r protocol.Reply) {
	defer func() {
		if p := recover(); p != nil { // gpython's, not ours
			r = protocol.Reply{Errors: []string{fmt.Sprintf("1: gpython failed: %v; use runtime: cpython", p)}}
		}
	}()
	f.path, f.lines, f.program = path, strings.Split(source, "\n"), rewrite(source)
	f.tokens = scan(f.program.source)
	found, siblings := lint(source, filepath.Dir(path))
	if len(found) == 0 {
		found = loadSiblings(filepath.Dir(path), siblings, map[string]bool{})
	}
	if len(found) > 0 {
		return protocol.Reply{Errors: found}
	}
	py.RegisterModule(typing())
	f.register()
	ctx := py.NewContext(py.ContextOpts{SysArgs: []string{"agentfly"}})
	if err := standardFiles(ctx); err != nil {
		return protocol.Reply{Errors: []string{"1: " + err.Error()}}
	}
	repair(ctx)
	f.current = &context{state: py.StringDict{}} // while the file loads
	code, mixed, err := compile(f.program.source, path)
	if err != nil {
		return protocol.Reply{Errors: []string{f.loadError(err)}}
	}
	if len(mixed) > 0 {
		return protocol.Reply{Errors: mixed}
	}
	m, err := py.RunCode(ctx, code, path, "agentfly_file")
	if err != nil {
		dump(err)
		return protocol.Reply{Errors: []string{f.loadError(err)}}
	}
	for _, e := range f.declared {
		d, err := f.describe(e)
		if err != nil {
			r.Errors = append(r.Errors, fmt.Sprintf("%d: %s: %v", f.line(e), e.name, err))
			continue
		}
		r.Functions = append(r.Functions, d)
	}
	for _, t := range f.tokens { // in their order, which the module's dict does not keep
		if fn, ok := m.Globals[t.text].(*py.Function); ok && t.column == 5 && strings.HasPrefix(t.text, "test_") && f.entries["test:"+t.text] == nil {
			r.Tests = append(r.Tests, t.text)
			f.entries["test:"+t.text] = &entry{kind: "test", name: t.text, target: fn}
		}
	}
	return r
}

// standardFiles keeps the file away from the protocol: what it prints goes to standard error, and it reads nothing.
func standardFiles(ctx py.Context) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	globals := ctx.Store().MustGetModule("sys").Globals
	for _, n := range []string{"stdout", "__stdout__"} {
		globals[n] = globals["stderr"]
	}
	for _, n := range []string{"stdin", "__stdin__"} {
		globals[n] = &py.File{File: null, FileMode: py.FileRead}
	}
	return nil
}

// Siblings are the files of the modules beside a file that it imports, and of those that they import.
func Siblings(file string) (files []string) {
	seen := map[string]bool{}
	var read func(path string)
	read = func(path string) {
		source, err := os.ReadFile(path)
		if err != nil {
			return // the worker says so
		}
		_, names := lint(string(source), filepath.Dir(path))
		for _, n := range names {
			if next := filepath.Join(filepath.Dir(path), n+".py"); !seen[n] {
				seen[n], files = true, append(files, next)
				read(next)
			}
		}
	}
	read(file)
	return files
}

// loadSiblings prepares the modules of the file's folder that it imports.
func loadSiblings(dir string, names []string, seen map[string]bool) (found []string) {
	for _, n := range names {
		if seen[n] {
			continue
		}
		seen[n] = true
		source, err := os.ReadFile(filepath.Join(dir, n+".py"))
		if err != nil {
			return []string{"1: " + err.Error()}
		}
		wrong, more := lint(string(source), dir)
		var code *py.Code
		if len(wrong) == 0 {
			if code, wrong, err = compile(rewrite(string(source)).source, n+".py"); err != nil {
				wrong = []string{lastLine(err)}
			}
		}
		for _, w := range wrong {
			found = append(found, "1: it imports "+n+".py, of which line "+w)
		}
		found = append(found, loadSiblings(dir, more, seen)...)
		py.RegisterModule(&py.ModuleImpl{Info: py.ModuleInfo{Name: n, FileDesc: n + ".py"}, Code: code})
	}
	return found
}

func (f *file) line(e *entry) int {
	if n := f.program.at[e.target.Name]; n > 0 {
		return n
	}
	return int(e.target.Code.Firstlineno)
}

func (f *file) describe(e *entry) (protocol.Declared, error) {
	_, own := e.options["schema"]
	parameters, rest, err := e.signature(e.kind == "tool" && !own)
	if err == nil && f.entries[e.name] != nil {
		err = errors.New("the name is used twice; write name= in one of the decorators")
	}
	if err != nil {
		return protocol.Declared{}, err
	}
	f.entries[e.name] = e
	doc, _ := e.target.Doc.(py.String)
	if !f.documented(e) {
		doc = ""
	}
	d := protocol.Declared{
		Kind: e.kind, Name: e.name, Line: f.line(e), Doc: string(doc), Stateful: e.stateful(), Parameters: parameters, Open: rest != nil, Rest: rest, Injected: e.injected,
	}
	given, err := wording.JSON(e.options)
	if err == nil {
		err = json.Unmarshal(given, &d.Options)
	}
	return d, err
}

// documented tells a docstring from another string that happens to be the function's first constant.
func (f *file) documented(e *entry) bool {
	tokens := f.tokens
	for i, t := range tokens {
		if t.kind != name || t.text != e.target.Name || i == 0 || tokens[i-1].text != "def" {
			continue
		}
		for i++; i < len(tokens) && tokens[i].kind != newline && !(tokens[i].text == ":" && tokens[i].within == ""); i++ {
		}
		for i++; i < len(tokens) && tokens[i].kind == newline; i++ {
		}
		return i < len(tokens) && tokens[i].kind == text
	}
	return false
}

// loadError is a line "LINE: what".
func (f *file) loadError(err error) string {
	line := 1
	e, at := exception(err)
	if e != nil {
		if n, ok := e.Dict["lineno"].(py.Int); ok {
			line = int(n)
		}
	}
	for ; at != nil; at = at.Next {
		if at.Frame.Code.Filename == f.path {
			line = int(at.Lineno)
		}
	}
	return fmt.Sprintf("%d: %s", f.program.line(line), lastLine(err))
}

// call runs a function and answers with what it returned or raised.
func (f *file) call(r protocol.Request) (a protocol.Reply) {
	defer func() {
		if p := recover(); p != nil {
			a = protocol.Reply{Error: fmt.Sprintf("SystemError: gpython: %v", p)}
		}
	}()
	e := f.entries[r.Name]
	if e == nil {
		return protocol.Reply{Error: "NameError: there is no function " + r.Name}
	}
	result, err := f.run(e, r)
	if err == nil {
		a.Result, err = encode(result)
	}
	if err != nil {
		dump(err)
		return protocol.Reply{Error: f.withSource(err)}
	}
	return a
}

func (f *file) run(e *entry, r protocol.Request) (py.Object, error) {
	v, err := decode(r.Arguments)
	if err != nil {
		return nil, err
	}
	given, ok := v.(py.StringDict)
	if !ok {
		given = py.NewStringDict()
	}
	for n, v := range given {
		if t, err := e.hintOf(n); e.kind == "tool" && err == nil && v != py.None {
			given[n] = convert(t, v)
		}
	}
	if _, wants := given["environment"]; wants && e.kind == "reward" && r.Environment {
		return nil, py.ExceptionNewf(py.NotImplementedError, "the argument environment is not supported by gpython where the trajectory has one; use runtime: cpython")
	}
	f.current = f.context(e, r.Trajectory)
	if slices.Contains(e.injected, "context") {
		if m, err := decode(r.Metadata); err == nil && m != py.None {
			f.current.metadata = m
		}
		given["context"] = f.current
	}
	return py.Call(e.target, py.Tuple{}, given)
}

// end forgets a trajectory, and closes what it kept that has a method close.
func (f *file) end(trajectory string) {
	c := f.contexts[trajectory]
	delete(f.contexts, trajectory)
	if c == nil {
		return
	}
	defer func() { _ = recover() }() // gpython's panic; nobody waits for it
	for _, name := range slices.Sorted(maps.Keys(c.state)) {
		method, err := py.GetAttrString(c.state[name], "close")
		if err != nil {
			continue
		}
		if _, err := py.Call(method, py.Tuple{}, nil); err != nil {
			dump(err)
		}
	}
}

// withSource is the last line of the traceback; an assertion that says nothing is quoted.
func (f *file) withSource(err error) string {
	line := lastLine(err)
	e, at := exception(err)
	if line != "AssertionError" || e == nil || at == nil {
		return line
	}
	for at.Next != nil {
		at = at.Next
	}
	if n := int(at.Lineno); n >= 1 && n <= len(f.lines) && at.Frame.Code.Filename == f.path {
		line += fmt.Sprintf(": line %d: %s", n, strings.TrimSpace(f.lines[n-1]))
	}
	return line
}

// dump writes a traceback for people.
func dump(err error) {
	if _, at := exception(err); at != nil {
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):")
		at.TracebackDump(os.Stderr)
	}
	fmt.Fprintln(os.Stderr, lastLine(err))
}
