package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/openenv"
	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// envCommands list environments, play them and offer them to others.
type envCommands struct{ *env }

func (c envCommands) command() *cli.Command {
	param := &cli.StringSliceFlag{Name: "param", Usage: "a parameter of the environment: `KEY=VALUE`, the value as in a job file; a.b=1 is within a; may be repeated"}
	const what = "KIND|FILE.py:CLASS|JOB.yaml"
	return &cli.Command{Name: "env", Usage: "look at environments, play one, offer one to others", Subcommands: []*cli.Command{
		{Name: "list", Usage: "list the kinds of environments that job files can name", Action: c.list},
		{Name: "serve", Usage: "offer an environment to OpenEnv's clients, over a websocket", ArgsUsage: what, Action: c.serve, Flags: []cli.Flag{
			param,
			&cli.StringFlag{Name: "address", Value: "127.0.0.1:8000", Usage: "`HOST:PORT` to listen on; port 0 takes a free one; a host that is not this machine's own needs an API key"},
			&cli.StringFlag{Name: "api-key", EnvVars: []string{"AGENTFLY_API_KEY"}, Usage: "`KEY` that every request but /health must bear"},
			&cli.IntFlag{Name: "max-sessions", Value: 64, Usage: "environments at once; a client beyond them is told CAPACITY_REACHED"},
			&cli.IntFlag{Name: "session-timeout", Value: 3600, Usage: "seconds after which a session over HTTP ends that sends nothing"},
			&cli.IntFlag{Name: "reset-timeout", Value: 60, Usage: "seconds for an environment to be made, or to begin an episode, after which it is closed"},
			&cli.IntFlag{Name: "step-timeout", Value: 30, Usage: "seconds for an environment to act, after which it is closed"},
			&cli.IntFlag{Name: "shutdown-timeout", Value: 30, Usage: "seconds that open sessions get at the end; new ones are refused meanwhile"},
		}},
		{Name: "play", Usage: "play an episode on the terminal", ArgsUsage: what, Action: c.play, Flags: []cli.Flag{
			param,
			&cli.Int64Flag{Name: "seed", Usage: "of the episode, and below 10000 the number of its task where the environment has tasks of its own"},
			&cli.StringFlag{Name: "split", Value: environments.Train, Usage: "of the environment's own tasks: train or eval"},
			&cli.StringFlag{Name: "task", Usage: "`JSON` object of the task's fields, in place of an own task"},
			&cli.BoolFlag{Name: "random", Usage: "actions by chance, from those that the environment says are possible"},
			&cli.BoolFlag{Name: "solve", Usage: "the actions of the environment's own solver"},
		}},
		{Name: "demonstrate", Usage: "write what the environment's own solver does, as conversations to learn from (sft)", ArgsUsage: "JOB.yaml", Action: c.demonstrate, Flags: []cli.Flag{
			modelFlag(), setFlag(), &cli.Uint64Flag{Name: "seed", Usage: "override the job's seed", DefaultText: "the job's"},
			&cli.IntFlag{Name: "tasks", Value: 64, Usage: "the first `N` tasks of the data to train on"},
		}},
	}}
}

func (c envCommands) list(*cli.Context) error {
	for _, name := range c.registries.Environments.Names() {
		if _, err := fmt.Fprintf(c.text, "%-16s %s\n", name, firstLine(c.registries.Environments.Description(name))); err != nil {
			return err
		}
	}
	return nil
}

// opened is the source that a command line names, with what it needs.
type opened struct {
	kind      string
	source    environments.Source
	resources *resources.Resources
}

func (o *opened) close() error { return errors.Join(o.source.Close(), o.resources.Close()) }

// open makes the source of a kind, of a class in a Python file, or of a job's environment. What is wrong with it is wrong input.
func (c envCommands) open(x *cli.Context) (*opened, error) {
	arg, err := one(x, "a kind of environment, FILE.py:CLASS or a job file; agentfly env list names the kinds")
	if err != nil {
		return nil, err
	}
	o := resources.Options{Warn: func(text string) { fmt.Fprintln(c.errOut, "agentfly: "+text) }}
	kind, params := arg, map[string]any{}
	file, _, _ := strings.Cut(arg, ":")
	switch filepath.Ext(file) {
	case ".py":
		kind, params["class"] = "python", arg
	case ".yaml", ".yml":
		j, err := job.LoadWith(arg, job.Options{Agents: c.registries.Agents})
		if err != nil {
			return nil, err
		}
		if j.Environment == nil {
			return nil, usagef("%s has no environment", arg)
		}
		kind, o.Resolve, o.Sandbox = j.Environment.Kind, j.Resolve, j.Sandbox
		for name, v := range j.Environment.Params {
			params[name] = v
		}
	}
	if err := setParams(params, x.StringSlice("param")); err != nil {
		return nil, err
	}
	shared := resources.New(o)
	s, err := c.registries.Environments.Make(x.Context, shared, kind, params)
	if err == nil {
		if err = shared.Begin(x.Context); err == nil {
			return &opened{kind, s, shared}, nil
		}
		err = errors.Join(err, s.Close())
	}
	return nil, errors.Join(usagef("%v", err), shared.Close())
}

// setParams reads KEY=VALUE, as --set of a job does: VALUE is YAML, and a dot in KEY goes into an object.
func setParams(params map[string]any, options []string) error {
	for _, option := range options {
		key, text, ok := strings.Cut(option, "=")
		if !ok || key == "" {
			return usagef("--param %s: write KEY=VALUE", option)
		}
		var v any
		value, err := job.OptionValue(text)
		if err == nil {
			err = value.Decode(&v)
		}
		if err != nil {
			return usagef("--param %s: the value is no YAML: %v", option, err)
		}
		here := params
		path := strings.Split(key, ".")
		for _, name := range path[:len(path)-1] {
			next, ok := here[name].(map[string]any)
			if !ok {
				if here[name] != nil {
					return usagef("--param %s: %s is no object", option, name)
				}
				next = map[string]any{}
				here[name] = next
			}
			here = next
		}
		here[path[len(path)-1]] = v
	}
	return nil
}

func (c envCommands) serve(x *cli.Context) (err error) {
	address := x.String("address")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--address %s: allowed is HOST:PORT, such as 127.0.0.1:8000", address)
	}
	if err := httpserver.CheckKey(address, host, x.String("api-key")); err != nil {
		return usagef("--address %v", err)
	}
	for flag, least := range map[string]int{"max-sessions": 1, "reset-timeout": 1, "step-timeout": 1, "session-timeout": 1, "shutdown-timeout": 0} {
		if x.Int(flag) < least {
			return usagef("--%s is %d; it must be at least %d", flag, x.Int(flag), least)
		}
	}
	o, err := c.open(x)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	server, err := openenv.NewServer(o.source, openenv.ServerOptions{
		Name: o.kind, Description: c.registries.Environments.Description(o.kind), Version: c.version, Key: x.String("api-key"), MaxSessions: x.Int("max-sessions"),
		Reset: time.Duration(x.Int("reset-timeout")) * time.Second, Step: time.Duration(x.Int("step-timeout")) * time.Second,
		Idle: time.Duration(x.Int("session-timeout")) * time.Second, Note: func(text string) { fmt.Fprintln(c.errOut, "agentfly: "+text) },
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return errors.Join(fmt.Errorf("env: serve: %w", err), server.Drain(0))
	}
	fmt.Fprintf(c.text, "serving %s on http://%s\n", o.kind, listener.Addr())
	running, stop := context.WithCancel(context.WithoutCancel(x.Context))
	defer stop()
	drained := make(chan error, 1)
	told := context.AfterFunc(x.Context, func() { // the listener answers until the sessions have ended: those over HTTP need it
		drained <- server.Drain(time.Duration(x.Int("shutdown-timeout")) * time.Second)
		stop()
	})
	err = httpserver.Service{Handler: server, Errors: c.errOut, Abort: func() {}}.Serve(running, listener)
	if told() { // the listener failed
		return errors.Join(fmt.Errorf("env: serve: %w", err), server.Drain(0))
	}
	if late := <-drained; late != nil {
		fmt.Fprintf(c.errOut, "agentfly: %v\n", late)
	}
	if err != nil && !errors.Is(err, httpserver.ErrLate) {
		return fmt.Errorf("env: serve: %w", err)
	}
	return nil
}

func (c envCommands) play(x *cli.Context) (err error) {
	if x.Bool("random") && x.Bool("solve") {
		return usagef("--random and --solve are two ways to play; give one")
	}
	if seed := x.Int64("seed"); seed < 0 || seed > 1<<31-1 {
		return usagef("--seed is %d; allowed: 0 to 2147483647", seed)
	}
	o, err := c.open(x)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	start, err := startOf(x, o.source, c.errOut)
	if err != nil {
		return err
	}
	m, err := environments.Open(o.source, o.resources.Pools(), environments.Options{
		Kind: o.kind, Owner: "play", Pool: pool.Options{Size: 1}, Note: func(text string) { fmt.Fprintln(c.errOut, "agentfly: "+text) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(m.Close(), err) }()
	e, err := m.Begin(x.Context, pool.Owner{Name: "play"}, start)
	if err != nil {
		return err
	}
	defer e.End()
	if text := m.Spec().Instructions; text != "" {
		fmt.Fprintln(c.text, text)
	}
	for _, t := range m.Spec().Tools {
		fmt.Fprintf(c.text, "tool %s %s: %s\n", t.Name, t.Parameters, firstLine(t.Description))
	}
	p := player{env: c.env, episode: e, tools: len(m.Spec().Tools) > 0, in: bufio.NewReader(c.in), dice: rand.New(rand.NewPCG(uint64(start.Seed), 0))}
	return p.play(x)
}

// numbered are the own tasks that a seed can number.
const numbered = 10_000

// startOf is the episode that the flags name. note is told what they do not.
func startOf(x *cli.Context, s environments.Source, note io.Writer) (start environments.Start, err error) {
	start.Seed, start.Task.ID = x.Int64("seed"), "play"
	if text := x.String("task"); text != "" {
		if err := decodeWhole(text, &start.Task.Fields); err != nil {
			return start, usagef("--task is no JSON object: %v", err)
		}
		return start, nil
	}
	own, ok := s.(environments.Tasker)
	if ok && start.Seed >= numbered { // all tasks before it would be made
		fmt.Fprintf(note, "agentfly: --seed %d: no task of the environment's own has this number; the episode begins by its seed alone\n", start.Seed)
		return start, nil
	}
	if ok {
		tasks, err := own.Tasks(x.String("split"), int(start.Seed)+1)
		if err == nil && len(tasks) > int(start.Seed) {
			start.Task = tasks[start.Seed]
			return start, nil
		}
		if x.IsSet("split") {
			return start, fmt.Errorf("the task: %w; --task gives one of your own", err)
		}
	}
	return start, nil
}

const goal = "the goal is reached"

// player plays one episode.
type player struct {
	*env
	episode *environments.Episode
	tools   bool
	in      *bufio.Reader
	dice    *rand.Rand
}

func (p player) play(x *cli.Context) error {
	next, err := p.hand(x)
	if err != nil {
		return err
	}
	p.show(p.episode.First())
	total, steps, reached := 0.0, 0, false
	for over := false; !over; {
		a, err := next()
		if errors.Is(err, io.EOF) {
			fmt.Fprintf(p.text, "left after %d actions, reward so far %g\n", steps, total)
			return nil
		}
		if err != nil {
			return err
		}
		r, err := p.episode.Step(x.Context, a)
		if err != nil {
			return err
		}
		p.show(r.Observation)
		total, steps, over, reached = total+r.Reward, steps+1, r.Over(), r.Success
		line := fmt.Sprintf("[reward %g", r.Reward)
		for _, said := range []struct {
			is   bool
			text string
		}{{r.Failure == trajectory.FailurePolicy, "the action was not possible"}, {r.Terminated, "the episode is over"}, {r.Truncated, "the episode was cut at a limit"}, {r.Success, goal}} {
			if said.is {
				line += ", " + said.text
			}
		}
		fmt.Fprintln(p.text, line+"]")
	}
	if score, own, err := p.episode.Score(x.Context); err != nil {
		return err
	} else if own {
		total = score
	}
	line := fmt.Sprintf("%d actions, reward %g", steps, total)
	if reached {
		line += ", " + goal
	}
	_, err = fmt.Fprintln(p.text, line)
	return err
}

// hand gives the next action, from the person, by chance or of the solver; io.EOF: there is none.
func (p player) hand(x *cli.Context) (func() (environments.Action, error), error) {
	said := func(a environments.Action) environments.Action {
		fmt.Fprintln(p.text, strings.TrimSpace("> "+a.Text+a.Name+" "+string(a.Arguments)))
		return a
	}
	switch {
	case x.Bool("solve"):
		actions, ok, err := p.episode.Solution(x.Context)
		if err == nil && !ok {
			err = usagef("the environment has no solver; leave --solve out")
		}
		return func() (a environments.Action, err error) {
			if len(actions) == 0 {
				return a, io.EOF
			}
			a, actions = actions[0], actions[1:]
			return said(a), nil
		}, err
	case x.Bool("random"):
		return func() (a environments.Action, err error) {
			all, ok, err := p.episode.Actions(x.Context)
			switch {
			case err != nil:
				return a, err
			case !ok:
				return a, usagef("the environment does not say which actions are possible; leave --random out")
			case len(all) == 0:
				return a, io.EOF
			}
			a, err = p.read(all[p.dice.IntN(len(all))])
			return said(a), err
		}, nil
	}
	return func() (environments.Action, error) {
		for {
			fmt.Fprint(p.text, "> ")
			line, err := p.in.ReadString('\n')
			if line = strings.TrimRight(line, "\r\n"); line == "" && err != nil {
				fmt.Fprintln(p.text)
				return environments.Action{}, err
			}
			a, err := p.read(line)
			if err == nil {
				return a, nil
			}
			fmt.Fprintln(p.text, err)
		}
	}, nil
}

// read is the action of a line: a text, or a tool's name and its arguments, or the JSON of such a call.
func (p player) read(line string) (environments.Action, error) {
	if !p.tools {
		return environments.Action{Text: line}, nil
	}
	var listed struct { // as an environment with tools of its own lists what is possible
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal([]byte(line), &listed) == nil && listed.Name != "" {
		return environments.Action{Name: listed.Name, Arguments: listed.Arguments}, nil
	}
	name, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
	if arguments = strings.TrimSpace(arguments); arguments == "" {
		arguments = "{}"
	}
	if name == "" || !json.Valid([]byte(arguments)) {
		return environments.Action{}, errors.New(`write a tool's name and its arguments: NAME {"argument": value}`)
	}
	return environments.Action{Name: name, Arguments: json.RawMessage(arguments)}, nil
}

// show prints an observation.
func (p player) show(o environments.Observation) {
	for _, part := range o {
		if part.Type == "image" {
			fmt.Fprintf(p.text, "(an image of %d bytes)\n", len(part.Image))
			continue
		}
		fmt.Fprintln(p.text, part.Text)
	}
}
