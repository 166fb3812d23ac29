// Package agentfly trains language-model agents with reinforcement learning: multi-turn rollouts with tools against a
// local libtorch engine, token-exact masks, and a masked policy-gradient update in libtorch.
//
// A Go team builds its own binary with its own tools, rewards and losses:
//
//	func main() { agentfly.Main(agentfly.WithTool(weather), agentfly.WithReward(politeness)) }
package agentfly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/python/gpython"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/tools/code"
	"github.com/agentfly/agentfly/tools/dense"
	"github.com/agentfly/agentfly/tools/files"
	httptool "github.com/agentfly/agentfly/tools/http"
	"github.com/agentfly/agentfly/tools/mcp"
	"github.com/agentfly/agentfly/tools/search"
	"github.com/agentfly/agentfly/tools/web"
)

// Version follows SemVer.
const Version = "0.1.0"

// Option adds to what job files can name.
type Option func(*orchestrator.Registries) error

// WithTool registers a tool under its own name.
func WithTool(t tools.Tool) Option {
	return func(r *orchestrator.Registries) error { return r.Tools.Register(t) }
}

// WithToolFactory registers a factory of tools with parameters, under a name that job files give: {name: NAME, parameter: value}.
func WithToolFactory(name, description string, f tools.Factory) Option {
	return func(r *orchestrator.Registries) error { return r.Tools.Add(name, description, f) }
}

// WithFormat registers a call format, which agents of kind custom name: agent: {kind: custom, format: NAME}.
func WithFormat(name string, f tools.FormatFactory) Option {
	return func(r *orchestrator.Registries) error { return r.Tools.AddFormat(name, f) }
}

// WithReward registers a reward under its own name.
func WithReward(w rewards.Reward) Option {
	return func(r *orchestrator.Registries) error { return r.Rewards.RegisterReward(w) }
}

// WithLoss registers a loss.
func WithLoss(s algorithms.LossSpec) Option {
	return func(r *orchestrator.Registries) error { return r.Algorithms.AddLoss(s) }
}

// WithEstimator registers an advantage estimator.
func WithEstimator(s algorithms.EstimatorSpec) Option {
	return func(r *orchestrator.Registries) error { return r.Algorithms.AddEstimator(s) }
}

// WithEngine registers one engine under a name that job files give: engine: {kind: NAME}. It serves one job, which closes it.
func WithEngine(name string, e engines.Engine) Option {
	return func(r *orchestrator.Registries) error { return r.Engines.AddEngine(name, e) }
}

// WithEngineFactory registers a factory of engines with parameters, under a name that job files give: engine: {kind: NAME, params: {…}}.
func WithEngineFactory(name, description string, f engines.Factory) Option {
	return func(r *orchestrator.Registries) error { return r.Engines.Add(name, description, f) }
}

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1 // the work failed
	exitInput       = 2 // the input or the job file is wrong
	exitInterrupted = 3 // interrupted and resumable
)

// Main runs the command line of the process and exits.
func Main(options ...Option) {
	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup a run goes on without its terminal
		stops = append(stops, syscall.SIGHUP)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // the second is no wish to end at once: kernel and shell each send one
	}
	ctx, stop := signal.NotifyContext(context.Background(), stops...)
	defer stop()
	go func() { // the second signal ends the process at once: a shell sees status 130 (SIGINT) or 143 (SIGTERM)
		<-ctx.Done()
		stop()
		fmt.Fprintln(os.Stderr, "agentfly: stopping; a second signal ends the process at once")
	}()
	os.Exit(Run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, options...))
}

// Run runs a command line and returns its exit status.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, options ...Option) int {
	gpython.Main(args)
	rawErr := errOut
	errOut = terminal.NewWriter(errOut) // of errors, which repeat what models, tools and programs said
	r, err := registries(options)
	if err == nil {
		a := app(r, in, out, errOut, rawErr, args[min(1, len(args)):])
		err = a.RunContext(ctx, flagsFirst(a.Commands, args))
	}
	if err == nil {
		return exitOK
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintln(errOut, "agentfly: "+line)
	}
	var input *job.Error
	var usage *usageError
	switch {
	case errors.Is(err, orchestrator.ErrInterrupted):
		return exitInterrupted
	case errors.As(err, &input), errors.As(err, &usage):
		return exitInput
	}
	return exitFailed
}

func registries(options []Option) (orchestrator.Registries, error) {
	r := orchestrator.Registries{Tools: tools.NewCatalog(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry(), Engines: engines.NewRegistry()}
	if err := errors.Join(
		r.Tools.Register(calculator.New(), tools.NewAnswer(), tools.NewSummarize()),
		code.Add(r.Tools), files.Add(r.Tools),
		r.Tools.Add(search.Name, "finds passages of a local corpus by their words (BM25)", search.Factory),
		r.Tools.Add(dense.Name, "finds passages of a local corpus by meaning (embeddings)", dense.Factory(sentenceTokenizer)),
		r.Tools.Add(web.SearchName, "asks a web search service with Serper's interface", web.Search),
		r.Tools.Add(web.FetchName, "reads a web page of allowed hosts", web.Fetch),
	); err != nil {
		return r, err
	}
	r.Tools.AddSource("python", tools.PythonFile)
	r.Tools.AddSource("http", httptool.Source)
	r.Tools.AddSource("mcp", mcp.Source)
	for _, o := range options {
		if err := o(&r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// sentenceTokenizer reads the tokenizer of a local sentence model.
func sentenceTokenizer(dir string) (dense.Tokenizer, error) { return tokenizer.Load(dir) }

// usageError is a wrong command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func app(r orchestrator.Registries, in io.Reader, out, errOut, rawErr io.Writer, args []string) *cli.App {
	c := &commands{r, in, out, terminal.NewWriter(out), errOut, rawErr, args}
	a := &cli.App{
		Name: "agentfly", Usage: "train language-model agents with reinforcement learning", Version: Version,
		Reader: in, Writer: out, ErrWriter: errOut, HideVersion: true, EnableBashCompletion: true, Suggest: true, DisableSliceFlagSeparator: true,
		ExitErrHandler:  func(*cli.Context, error) {},
		OnUsageError:    func(_ *cli.Context, err error, _ bool) error { return usagef("%v; see agentfly --help", err) },
		CommandNotFound: func(*cli.Context, string) {},
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return usagef("there is no command %q; see agentfly --help", x.Args().First())
			}
			return cli.ShowAppHelp(x)
		},
		Commands: c.all(),
	}
	quiet(a.Commands)
	return a
}

// quiet makes every command report its errors through Run alone, and completes as a shell expects.
func quiet(all []*cli.Command) {
	for _, c := range all {
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usagef("%v; see agentfly --help", err) }
		c.HideHelpCommand = len(c.Subcommands) == 0 // it would hide the completion of file names; --help stays
		quiet(c.Subcommands)
	}
}
