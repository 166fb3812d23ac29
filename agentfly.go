// Package agentfly trains language-model agents with reinforcement learning: multi-turn rollouts with tools against a
// local libtorch engine, token-exact masks, and a masked policy-gradient update in libtorch.
//
// A Go team builds its own binary with its own tools, rewards and losses:
//
//	func main() { agentfly.Main(agentfly.WithTool(weather), agentfly.WithReward(politeness)) }
//
// It does not parse command lines (package cli), and it does not run anything itself: package orchestrator trains,
// evaluates and rolls out.
package agentfly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cli"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/alfworld"
	"github.com/agentfly/agentfly/environments/browser"
	"github.com/agentfly/agentfly/environments/chess"
	"github.com/agentfly/agentfly/environments/frozenlake"
	"github.com/agentfly/agentfly/environments/harbor"
	"github.com/agentfly/agentfly/environments/mle"
	"github.com/agentfly/agentfly/environments/openenv"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/environments/reasoning"
	"github.com/agentfly/agentfly/environments/repository"
	"github.com/agentfly/agentfly/environments/scienceworld"
	"github.com/agentfly/agentfly/environments/sokoban"
	"github.com/agentfly/agentfly/environments/textworld"
	"github.com/agentfly/agentfly/environments/textworldexpress"
	"github.com/agentfly/agentfly/environments/voxel"
	"github.com/agentfly/agentfly/environments/webshop"
	"github.com/agentfly/agentfly/internal/sysmon"
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

// WithAgent registers a kind of agent, with the call format that is its own: agent: {kind: NAME}.
func WithAgent(k agents.Kind) Option {
	return func(r *orchestrator.Registries) error { return r.Agents.AddKind(k) }
}

// WithAgentFactory registers a kind of agent whose call format a factory makes for a job's tools: agent: {kind: NAME}.
func WithAgentFactory(name, description string, f agents.FormatFactory) Option {
	return WithAgent(agents.Kind{Name: name, Description: description, Format: agents.FormatSpec{New: f}})
}

// WithFormat registers a call format with all that it declares: the kind of agents that can name it, vLLM's names of it, and what chat
// templates know of it.
func WithFormat(s agents.FormatSpec) Option {
	return func(r *orchestrator.Registries) error { return r.Agents.AddFormat(s) }
}

// WithFormatFactory registers a call format that a factory makes for a job's tools, for agents of kind custom: agent: {kind: custom, format:
// NAME}.
func WithFormatFactory(name, description string, f agents.FormatFactory) Option {
	return WithFormat(agents.FormatSpec{Name: name, Description: description, New: f})
}

// WithReward registers a reward under its own name.
func WithReward(w rewards.Reward) Option {
	return func(r *orchestrator.Registries) error { return r.Rewards.Register(w) }
}

// WithRewardFactory registers a factory of rewards with parameters, under a name that job files give: {name: NAME, parameter: value}.
func WithRewardFactory(name, description string, f rewards.Factory) Option {
	return func(r *orchestrator.Registries) error { return r.Rewards.Add(name, description, f) }
}

// WithLoss registers a loss as its specification says, with settings of its own where it has some.
func WithLoss(s algorithms.LossSpec) Option {
	return func(r *orchestrator.Registries) error { return r.Algorithms.AddLoss(s) }
}

// WithLossFactory registers a loss that clips nothing and has no settings of its own. The description is its formula, which
// `agentfly job effective` prints. What else there is to say of a loss says WithLoss.
func WithLossFactory(name, description string, f func(algorithms.Settings) (algorithms.Loss, error)) Option {
	return WithLoss(algorithms.LossSpec{Name: name, Formula: description, New: f})
}

// WithEstimator registers an advantage estimator as its specification says, with settings of its own where it has some.
func WithEstimator(s algorithms.EstimatorSpec) Option {
	return func(r *orchestrator.Registries) error { return r.Algorithms.AddEstimator(s) }
}

// WithEstimatorFactory registers an advantage estimator that reads rewards and tokens and has no settings of its own. The description is its
// formula, which `agentfly job effective` prints. What else there is to say of an estimator says WithEstimator.
func WithEstimatorFactory(name, description string, f func(algorithms.Settings) (algorithms.Estimator, error)) Option {
	return WithEstimator(algorithms.EstimatorSpec{Name: name, Formula: description, New: f})
}

// WithEngine registers one engine under a name that job files give: engine: {kind: NAME}. It serves one job, which closes it.
func WithEngine(name string, e engines.Engine) Option {
	return func(r *orchestrator.Registries) error { return r.Engines.AddEngine(name, e) }
}

// WithEngineFactory registers a factory of engines with parameters, under a name that job files give: engine: {kind: NAME, params: {…}}.
func WithEngineFactory(name, description string, f engines.Factory) Option {
	return func(r *orchestrator.Registries) error { return r.Engines.Add(name, description, f) }
}

// WithEnvironment registers a kind of environment: environment: {kind: NAME, params: {…}}.
func WithEnvironment(k environments.Kind) Option {
	return func(r *orchestrator.Registries) error { return r.Environments.Add(k) }
}

// WithEnvironmentFactory registers a kind of environment that a factory makes for a job.
func WithEnvironmentFactory(name, description string, f environments.Factory) Option {
	return WithEnvironment(environments.Kind{Name: name, Description: description, New: f})
}

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1 // the work failed
	exitInput       = 2 // the input or the job file is wrong
	exitInterrupted = 3 // stopped by a signal; a run can go on
)

// Main runs the command line of the process and exits.
func Main(options ...Option) {
	sysmon.KeepAwake()
	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup a run goes on without its terminal
		stops = append(stops, syscall.SIGHUP)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // the second is no wish to end at once: kernel and shell each send one
	}
	notices := terminal.NewNotices(os.Stderr)
	ctx, cancel := context.WithCancelCause(notices.On(context.Background()))
	first := make(chan os.Signal, 1)
	signal.Notify(first, stops...)
	go func() { // the second signal ends the process at once: a shell sees status 130 (SIGINT) or 143 (SIGTERM)
		sign := <-first
		signal.Stop(first)
		said := make(chan struct{})
		go func() {
			defer close(said)
			notices.Say("agentfly: stopping; a second signal ends the process at once")
		}()
		select { // what is done about it is said after this, unless nobody reads it
		case <-said:
		case <-time.After(100 * time.Millisecond):
		}
		cancel(errors.New(sign.String() + " signal received"))
	}()
	os.Exit(Run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, options...))
}

// rooms are the names of packages that errors came through: where a line begins, and behind a colon those that no person would write.
var rooms = regexp.MustCompile(`^((?:agents|algorithms|cgo|chat|doctor|engines|environments|gateway|init|jinja|local|masks|modelfile|orchestrator|policy|python|resources|rewards|serve|session|store|tokenizer|tools|trainer|try): )+` +
	`|(: )(?:(?:cgo|masks|modelfile|orchestrator|policy|session): )+`)

// Run runs a command line and returns its exit status.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, options ...Option) int {
	gpython.Main(args)
	r, err := registries(options)
	if err == nil {
		err = cli.Program{Version: Version, Registries: r, In: in, Out: out, ErrOut: errOut}.Run(ctx, args)
	}
	if err == nil {
		return exitOK
	}
	errOut = terminal.NewWriter(errOut) // errors repeat what models, tools and programs said
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintln(errOut, "agentfly: "+rooms.ReplaceAllString(line, "$2"))
	}
	var input *job.Error
	var usage *cli.UsageError
	switch {
	case errors.Is(err, orchestrator.ErrInterrupted), errors.Is(err, orchestrator.ErrStopped):
		return exitInterrupted
	case errors.As(err, &input), errors.As(err, &usage):
		return exitInput
	}
	return exitFailed
}

func registries(options []Option) (orchestrator.Registries, error) {
	r := orchestrator.Registries{Tools: tools.NewCatalog(), Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry(), Engines: engines.NewRegistry(), Environments: environments.NewRegistry()}
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
	for _, k := range []environments.Kind{
		alfworld.Kind(), browser.Kind(), chess.Kind(), frozenlake.Kind(), harbor.Kind(), mle.Kind(), openenv.Kind(), pyenv.Kind(), reasoning.Kind(), repository.Kind(),
		scienceworld.Kind(), sokoban.Kind(), textworld.Kind(), textworldexpress.Kind(), voxel.Kind(), webshop.Kind(),
	} {
		if err := r.Environments.Add(k); err != nil {
			return r, err
		}
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
