package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// initCommand writes the files of a first job.
type initCommand struct{ *env }

//go:embed begin
var beginnings embed.FS

// firstModel is what a job trains whose author names none: `make setup` fetches it.
const firstModel = "HuggingFaceTB/SmolLM2-135M-Instruct"

func (c initCommand) command() *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "write a job with a tool, a reward and data, to begin with", ArgsUsage: "[DIR]", Action: c.init,
		Description: "On a terminal it asks for what no flag says. Files that are there already stay as they are: then nothing is written.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "of the job; default is that of the folder"},
			&cli.StringFlag{Name: "model", TakesFile: true, Value: firstModel, Usage: "folder, .gguf, run folder or hub id `MODEL`"},
			&cli.StringFlag{Name: "tool", Value: "python", Usage: "python (a tool of your own) or none"},
			&cli.IntFlag{Name: "steps", Value: 20, Usage: "`N` steps of the run"},
			&cli.BoolFlag{Name: "yes", Usage: "ask nothing"},
		},
	}
}

// beginning is what the files of a first job depend on.
type beginning struct {
	Name  string
	Model string // as YAML writes it
	Tool  bool
	Steps int
	notes []string // what the user should know of the answers
}

// jobName is what a job may be called.
var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func (c initCommand) init(x *cli.Context) error {
	if x.NArg() > 1 {
		return usagef("agentfly init takes one folder; got %d arguments", x.NArg())
	}
	dir := "."
	if x.NArg() == 1 {
		dir = filepath.Clean(x.Args().First())
	}
	b, err := c.answers(x, dir)
	if err != nil {
		return err
	}
	files, err := b.files()
	if err != nil {
		return err
	}
	for above := filepath.Dir(filepath.Join(dir, "job.yaml")); ; above = filepath.Dir(above) { // the first folder that is there
		info, err := os.Stat(above)
		if err == nil && !info.IsDir() {
			return usagef("%s is a file; name another folder: agentfly init DIR", above)
		}
		if err == nil || above == filepath.Dir(above) {
			break
		}
	}
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			there = append(there, filepath.Join(dir, f.name))
		}
	}
	if len(there) > 0 {
		return usagef("nothing is written, because it is there already: %s; name another folder: agentfly init DIR", strings.Join(there, ", "))
	}
	for n, f := range files {
		if err := writeNew(filepath.Join(dir, f.name), f.text); err != nil {
			for _, written := range files[:n] { // so that the same command can be given again
				err = errors.Join(err, os.Remove(filepath.Join(dir, written.name)))
			}
			return fmt.Errorf("init: %w", err)
		}
	}
	path := filepath.Join(dir, "job.yaml")
	c.tell(b.notes)
	if _, err := job.LoadWith(path, job.Options{Agents: c.registries.Agents}); err != nil { // such as a registry without its format
		return err
	}
	p := c.page()
	for i, f := range files {
		label := ""
		if i == 0 {
			label = "wrote"
		}
		p.line(label, "%-*s  %s", len(dir)+18, filepath.Join(dir, f.name), f.what)
	}
	path = wording.ShellWord(path)
	p.line("next", "%-*s  %s", len(path)+22, "agentfly job validate "+path, "check it")
	p.line("", "%-*s  %s", len(path)+22, "agentfly try "+path, "see one trajectory")
	p.line("", "%-*s  %s", len(path)+22, "agentfly train "+path, "train")
	return p.err
}

// answers are the flags, and on a terminal what its user says to the rest.
func (c initCommand) answers(x *cli.Context, dir string) (b beginning, err error) {
	name := x.String("name")
	if name == "" {
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return b, err
		}
		if name = filepath.Base(absolute); !jobName.MatchString(name) {
			name = "first"
		}
	}
	model, tool, steps := x.String("model"), x.String("tool"), strconv.Itoa(x.Int("steps"))
	if c.canAsk() && !x.Bool("yes") {
		in := bufio.NewReader(c.in)
		for _, q := range []struct {
			flag, question string
			answer         *string
		}{
			{"name", "name of the job", &name},
			{"model", "model to train (folder, .gguf, hub id)", &model},
			{"tool", "a tool in Python (python, none)", &tool},
			{"steps", "steps to train", &steps},
		} {
			if x.IsSet(q.flag) {
				continue
			}
			fmt.Fprintf(c.errOut, "%s [%s]: ", q.question, *q.answer)
			line, err := in.ReadString('\n')
			if err != nil {
				fmt.Fprintln(c.errOut)
				return b, usagef("nothing is written: the answers ended")
			}
			if line = strings.TrimSpace(line); line != "" {
				*q.answer = line
			}
		}
	}
	b.Steps, err = strconv.Atoi(steps)
	switch {
	case !jobName.MatchString(name):
		return b, usagef("the name %q: it begins with a letter or digit and has letters, digits, . _ and -, at most 100", name)
	case tool != "python" && tool != "none":
		return b, usagef("the tool is %q; allowed: python, none", tool)
	case err != nil || b.Steps < 1:
		return b, usagef("steps is %q; it must be a whole number that is at least 1", steps)
	case strings.TrimSpace(model) == "":
		return b, usagef("the model is empty; name a folder, a .gguf or a hub id")
	}
	if _, err := os.Stat(model); err != nil {
		if _, err := os.Stat(filepath.Join(dir, model)); err != nil {
			if _, err := modelfile.Resolve(model); err != nil {
				if _, id := modelfile.ParseHubID(model); !id {
					return b, usagef("%v", err)
				}
				b.notes = append(b.notes, job.Words(err))
			} else if run, at, ok := strings.Cut(model, "@"); ok { // a checkpoint of a run, such as RUN@best
				if _, err := os.Stat(run); err == nil {
					if run, err = filepath.Abs(run); err != nil {
						return b, err
					}
					model = run + "@" + at
				}
			}
		}
	} else { // a path of this folder is none of the job's
		if model, err = filepath.Abs(model); err != nil {
			return b, err
		}
	}
	if wording.ShellWord(model) != model || strings.ContainsAny(model, "@%=,:") {
		model = strconv.Quote(model)
	}
	b.Name, b.Model, b.Tool = name, model, tool == "python"
	return b, nil
}

// beginningFile is a file to write.
type beginningFile struct {
	name, what string
	text       []byte
}

func (b beginning) files() (out []beginningFile, err error) {
	for _, f := range []beginningFile{
		{name: "job.yaml", what: "the job"}, {name: "tools.py", what: "the tool calculator and its test"}, {name: "rewards.py", what: "the reward right and its test"},
	} {
		if f.name == "tools.py" && !b.Tool {
			continue
		}
		parsed, err := template.ParseFS(beginnings, "begin/"+f.name)
		if err != nil {
			return nil, fmt.Errorf("init: %w", err)
		}
		var text bytes.Buffer
		if err := parsed.Execute(&text, b); err != nil {
			return nil, fmt.Errorf("init: %w", err)
		}
		f.text = text.Bytes()
		out = append(out, f)
	}
	train, eval := b.tasks()
	return append(out,
		beginningFile{filepath.Join("data", "worked.jsonl"), "conversations that show the form", b.worked()},
		beginningFile{filepath.Join("data", "train.jsonl"), "96 tasks", train},
		beginningFile{filepath.Join("data", "eval.jsonl"), "32 other tasks", eval}), nil
}

func (b beginning) worked() []byte {
	var out bytes.Buffer
	for _, w := range []struct {
		question, expression string
		answer               int
	}{
		{"Tim has 47 nuts and Eva has 85 nuts. How many nuts is that in all?", "47 + 85", 132},
		{"Rosa had 90 keys and lost 34. How many keys are left?", "90 - 34", 56},
		{"There are 12 jars with 18 beans in each. How many beans is that?", "12 * 18", 216},
	} {
		call := ""
		if b.Tool {
			call = fmt.Sprintf(`{"role":"assistant","content":"<calculator>%s</calculator>"},{"role":"user","content":"<result>%d</result>"},`, w.expression, w.answer)
		}
		fmt.Fprintf(&out, `{"messages":[{"role":"user","content":"%s"},%s{"role":"assistant","content":"<answer>%d</answer>"}]}`+"\n", w.question, call, w.answer)
	}
	return out.Bytes()
}

// tasks are small problems in words, the same in every folder, each once and none of them worked. A small model gets some of them right, so
// that there is something to learn from the first step on.
func (b beginning) tasks() (train, eval []byte) {
	forms := []struct {
		question string
		of       func(a, b int) int
	}{
		{"One shelf holds %d books and another shelf holds %d books. How many books do both shelves hold together?", func(a, b int) int { return a + b }},
		{"Clara had %d tickets and gave away %d. How many tickets are left?", func(a, b int) int { return a - b }},
		{"Grace found %d shells and then found %d more. How many shells did Grace find in total?", func(a, b int) int { return a + b }},
		{"There are %d boxes with %d pens in each. How many pens is that?", func(a, b int) int { return a * b }},
	}
	dice := rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	var out [2]bytes.Buffer
	for n := 0; n < 128; {
		form := forms[n%len(forms)]
		x, y := 10+dice.IntN(90), 10+dice.IntN(90)
		question, answer := fmt.Sprintf(form.question, x, y), form.of(x, y)
		if seen[question] || answer < 1 {
			continue
		}
		seen[question] = true
		file := 0
		if n >= 96 {
			file = 1
		}
		fmt.Fprintf(&out[file], `{"question":"%s","answer":"%d"}`+"\n", question, answer)
		n++
	}
	return out[0].Bytes(), out[1].Bytes()
}

// writeNew writes a file that is not there yet, whole or not at all.
func writeNew(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("the folder cannot be made: %w; name one that can be written to: agentfly init DIR", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; nothing more is written", path)
	}
	if err != nil {
		return fmt.Errorf("%w; name a folder that can be written to: agentfly init DIR", err)
	}
	_, err = f.Write(text)
	if err = cmp.Or(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("%w; make room, or name another folder: agentfly init DIR", err), os.Remove(path))
	}
	return nil
}
