package agentfly

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/doctor"
	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// commands hold what every command may use.
type commands struct {
	registries orchestrator.Registries
	in         io.Reader
	out        io.Writer // JSON lines and other output for programs
	text       io.Writer // the same output for people: what models, tools and files say is made safe for a terminal
	errOut     io.Writer // as text
	rawErr     io.Writer // errOut as it was given, for processes that make theirs safe themselves
	args       []string  // of the process, without its name
}

func (c *commands) all() []*cli.Command {
	set := &cli.StringSliceFlag{Name: "set", Usage: "override a setting of the job: `KEY.PATH=VALUE`; may be repeated"}
	seed := &cli.Uint64Flag{Name: "seed", Usage: "override the job's seed"}
	output := &cli.StringFlag{Name: "output", Usage: "run folder `DIR`, instead of the job's"}
	model := &cli.StringFlag{Name: "model", Usage: "folder, .gguf or hub id `MODEL`"}
	return []*cli.Command{
		{
			Name: "train", Usage: "train the policy of a job file", ArgsUsage: "JOB",
			Flags:  []cli.Flag{output, &cli.BoolFlag{Name: "resume", Usage: "continue the run in the run folder"}, seed, set, &cli.IntFlag{Name: "ranks", Usage: "train in `N` processes of this machine; on several machines start each with torchrun's variables instead"}},
			Action: c.train,
		},
		{
			Name: "replay", Usage: "sample and train a run again, and hold tokens, logprobs, versions and weights against it", ArgsUsage: "RUN",
			Flags: []cli.Flag{&cli.StringFlag{Name: "output", Usage: "keep metrics and checkpoints of the replay in `DIR`"}}, Action: c.replay,
		},
		{Name: "eval", Usage: "evaluate a policy on the job's held-out tasks", ArgsUsage: "JOB", Flags: []cli.Flag{model, seed, set, &cli.BoolFlag{Name: "tool-off", Usage: "switch the tools off"}}, Action: c.eval},
		{Name: "rollout", Usage: "sample trajectories of a job's training tasks as JSON lines, without training", ArgsUsage: "JOB", Flags: []cli.Flag{model, seed, set, &cli.IntFlag{Name: "steps", Value: 1, Usage: "steps' worth of tasks"}}, Action: c.rollout},
		c.serveCommand(),
		{Name: "job", Usage: "look at job files", Subcommands: []*cli.Command{
			{Name: "validate", Usage: "check a job file and its data", ArgsUsage: "JOB", Flags: []cli.Flag{set, &cli.BoolFlag{Name: "run-code", Usage: "start the programs that the job names, import its Python files and ask its services; without it a terminal is asked"}}, Action: c.jobValidate},
			{Name: "effective", Usage: "print the algorithm that a job really runs", ArgsUsage: "JOB", Flags: []cli.Flag{set}, Action: c.jobEffective},
			{Name: "schema", Usage: "print the JSON schema of job files", Action: c.jobSchema},
		}},
		c.toolsCommand(),
		c.agentsCommand(),
		{Name: "model", Usage: "look at and fetch models", Subcommands: []*cli.Command{
			{Name: "info", Usage: "describe a model", ArgsUsage: "MODEL", Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}}, Action: c.modelInfo},
			{Name: "pull", Usage: "fetch a model from the hub", ArgsUsage: "ORG/NAME[@REVISION]", Flags: []cli.Flag{&cli.StringFlag{Name: "file", Usage: "only this .gguf `FILE`"}}, Action: c.modelPull},
			{Name: "import", Usage: "convert a model to a Hugging Face folder", ArgsUsage: "MODEL DIR", Flags: []cli.Flag{&cli.StringFlag{Name: "dtype", Usage: "F32, F16 or BF16; default keeps 16-bit types"}}, Action: c.modelImport},
		}},
		{Name: "inspect", Usage: "JSON lines in, JSON lines out: hold the program against another implementation", Subcommands: c.inspect(model)},
		{Name: "doctor", Usage: "check this machine and name the remedies", Action: c.doctor},
		{Name: "completion", Usage: "print the completion script of a shell: source <(agentfly completion bash)", ArgsUsage: "bash|zsh|fish", Action: c.completion},
		{Name: "version", Usage: "print the versions of agentfly, libtorch and CUDA", Action: c.version},
	}
}

func one(x *cli.Context, what string) (string, error) {
	if x.NArg() != 1 {
		return "", usagef("agentfly %s takes one argument, %s; got %d", x.Command.FullName(), what, x.NArg())
	}
	return x.Args().First(), nil
}

func (c *commands) load(x *cli.Context) (*job.Job, error) {
	path, err := one(x, "the job file")
	if err != nil {
		return nil, err
	}
	sets := x.StringSlice("set")
	if x.IsSet("seed") {
		sets = append(sets, fmt.Sprintf("seed=%d", x.Uint64("seed")))
	}
	j, err := job.LoadWith(path, job.Options{Set: sets, Agents: c.registries.Agents})
	if err == nil && x.String("output") != "" {
		j.Output = x.String("output")
	}
	return j, err
}

func (c *commands) train(x *cli.Context) error {
	j, err := c.load(x)
	if err != nil {
		return err
	}
	ctx, stop := c.watch(x, j.Rollout.Watchdog)
	defer stop()
	_, err = orchestrator.Train(ctx, j, c.registries, orchestrator.Options{
		Resume: x.Bool("resume"), Out: c.text, Ranks: x.Int("ranks"), Arguments: c.args, ErrOut: c.rawErr,
	})
	return err
}

func (c *commands) replay(x *cli.Context) error {
	dir, err := one(x, "the run folder")
	if err != nil {
		return err
	}
	ctx, stop := c.watch(x, 120) // the run's own is in its folder's job
	defer stop()
	return orchestrator.Replay(ctx, dir, x.String("output"), c.registries, c.text)
}

func (c *commands) eval(x *cli.Context) error {
	j, err := c.load(x)
	if err != nil {
		return err
	}
	ctx, stop := c.watch(x, j.Rollout.Watchdog)
	defer stop()
	e, err := orchestrator.Evaluate(ctx, j, x.String("model"), x.Bool("tool-off"), c.registries)
	if err != nil {
		return err
	}
	for _, line := range e.Table() { // for people; the line on standard output is for programs
		fmt.Fprintln(c.errOut, line)
	}
	return c.print(e)
}

// watch says on standard error what the job waits for when nothing moves, and when the process gets SIGUSR1.
func (c *commands) watch(x *cli.Context, quiet float64) (context.Context, func()) {
	ask := make(chan os.Signal, 1)
	signal.Notify(ask, syscall.SIGUSR1)
	if rank := os.Getenv("RANK"); rank != "" && rank != "0" { // it waits for rank 0 most of the time, which speaks
		quiet = 0
	}
	ctx, stop := orchestrator.Watch(x.Context, quiet, c.errOut, ask)
	return ctx, func() {
		signal.Stop(ask)
		stop()
	}
}

func (c *commands) rollout(x *cli.Context) error {
	j, err := c.load(x)
	if err != nil {
		return err
	}
	ctx, stop := c.watch(x, j.Rollout.Watchdog)
	defer stop()
	return orchestrator.Sample(ctx, j, x.String("model"), x.Int("steps"), c.registries, func(t *trajectory.Trajectory) error { return c.print(t) })
}

// print writes one JSON line.
func (c *commands) print(v any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	data := line.Bytes()
	if terminal.Is(c.out) {
		data = terminal.JSON(data)
	}
	_, err := c.out.Write(data)
	return err
}

func (c *commands) jobValidate(x *cli.Context) error {
	j, err := c.load(x)
	if err != nil {
		return err
	}
	var notRun []string
	if !x.Bool("run-code") {
		if notRun, err = orchestrator.Look(x.Context, j, c.registries); err != nil {
			return err
		}
	}
	if x.Bool("run-code") || len(notRun) > 0 && c.agreed(j.Path(), notRun) {
		notRun = nil
		if err := orchestrator.Validate(x.Context, j, c.registries); err != nil {
			return err
		}
	}
	a, err := orchestrator.Algorithm(j, c.registries)
	if err != nil {
		return err
	}
	refused := orchestrator.Trainable(j, a)
	but := ""
	if len(notRun) > 0 {
		but = ", but not all of it was checked, because that runs what the job names:\n  " + strings.Join(notRun, "\n  ") +
			"\na job file is code: run agentfly job validate --run-code on one that you trust"
	}
	switch {
	case refused == nil:
		_, err = fmt.Fprintf(c.text, "%s: ok%s\n", j.Path(), but)
	case j.SFT != nil: // it can do nothing else
		return refused
	default:
		_, err = fmt.Fprintf(c.text, "%s: ok for rollout and eval; train refuses it:\n%v\n", j.Path(), refused)
		if but != "" {
			_, err = fmt.Fprintf(c.text, "%s: ok%s\n", j.Path(), but)
		}
	}
	return err
}

// agreed asks on a terminal whether what a job names may run. Where nobody can answer it may not.
func (c *commands) agreed(path string, notRun []string) bool {
	if !terminal.Is(c.in) || !terminal.Is(c.rawErr) {
		return false
	}
	fmt.Fprintf(c.errOut, "a job file is code: to check all of %s, this is run:\n  %s\nrun it? [y/N] ", path, strings.Join(notRun, "\n  "))
	answer, _ := bufio.NewReader(c.in).ReadString('\n') // without one the answer is no
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

func (c *commands) jobEffective(x *cli.Context) error {
	j, err := c.load(x)
	if err != nil {
		return err
	}
	a, err := orchestrator.Algorithm(j, c.registries)
	if err != nil {
		return err
	}
	if err := orchestrator.Trainable(j, a); err != nil { // no update is computed then
		return err
	}
	text := a.Describe() + orchestrator.DescribeRate(j, a)
	if j.SFT == nil {
		text += orchestrator.DescribeMode(j, a)
	}
	_, err = fmt.Fprint(c.text, text)
	return err
}

func (c *commands) jobSchema(*cli.Context) error { return c.print(job.Schema(c.registries.Agents)) }

func (c *commands) modelInfo(x *cli.Context) error {
	path, err := one(x, "a folder, a .gguf or a hub id")
	if err != nil {
		return err
	}
	info, err := modelfile.Describe(path)
	if err != nil {
		return err
	}
	if x.Bool("json") {
		return c.print(info)
	}
	_, err = fmt.Fprintln(c.text, info)
	return err
}

func (c *commands) modelPull(x *cli.Context) error {
	id, err := one(x, "a hub id")
	if err != nil {
		return err
	}
	hub, err := modelfile.HubFromEnv()
	if err != nil {
		return err
	}
	parsed, ok := modelfile.ParseHubID(id)
	if !ok {
		return usagef("%q is no hub id; write ORG/NAME or ORG/NAME@REVISION", id)
	}
	dir, err := hub.Pull(x.Context, parsed, x.String("file"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.text, dir)
	return err
}

func (c *commands) modelImport(x *cli.Context) error {
	if x.NArg() != 2 {
		return usagef("agentfly model import takes a model and the folder to write")
	}
	if err := policy.Convert(x.Args().Get(0), x.Args().Get(1), modelfile.DType(x.String("dtype"))); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.text, filepath.Clean(x.Args().Get(1)))
	return err
}

func (c *commands) doctor(x *cli.Context) error {
	t := doctor.Torch{CUDADevices: cgo.CUDADevices()}
	if cgo.Available() {
		t.Version = cgo.TorchVersion()
	}
	missing := 0
	for _, check := range doctor.Run(x.Context, t, openSandbox, ".") {
		line := fmt.Sprintf("%-10s %-8s %s", check.Name, check.State, check.Found)
		if check.Remedy != "" {
			line += " -> " + check.Remedy
		}
		if _, err := fmt.Fprintln(c.text, line); err != nil {
			return err
		}
		if check.State == doctor.Missing {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("doctor: %d thing(s) that training needs are missing", missing)
	}
	return nil
}

// openSandbox is the sandbox of a job that does not choose one.
func openSandbox(ctx context.Context) (string, error) {
	box, err := sandbox.Open(ctx, sandbox.Auto)
	if err != nil {
		return "", err
	}
	return box.Kind(), nil
}

func (c *commands) version(*cli.Context) error {
	torch := "none (built without the torch tag)"
	if cgo.Available() {
		torch = cgo.TorchVersion()
	}
	_, err := fmt.Fprintf(c.text, "agentfly %s\nlibtorch %s\ncuda     %d device(s)\n", Version, torch, cgo.CUDADevices())
	return err
}
