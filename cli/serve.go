package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/serve"
)

// serveCommand serves a model. It takes vLLM's flag names.
type serveCommand struct{ *env }

func (c serveCommand) command() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "serve a model over vLLM's and OpenAI's HTTP routes", ArgsUsage: "MODEL", Action: c.serve,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "host", Value: "127.0.0.1", Usage: "`ADDRESS` to listen on; one that is not this machine's own needs an API key"},
			&cli.IntFlag{Name: "port", Value: 8000, Usage: "`PORT`; 0 takes a free one"},
			&cli.StringSliceFlag{Name: "served-model-name", Usage: "`NAME` of the model in requests and replies; may be repeated; default is MODEL"},
			&cli.StringFlag{Name: "api-key", EnvVars: []string{"AGENTFLY_API_KEY"}, Usage: "`KEY` that every request but /health must bear"},
			&cli.IntFlag{Name: "max-model-len", Usage: "prompt plus completion, tokens; default is the model's"},
			&cli.IntFlag{Name: "max-num-seqs", Value: 64, Usage: "completions that run at once"},
			&cli.IntFlag{Name: "max-queue", Value: 1024, Usage: "completions that run or wait; more are refused with status 429"},
			&cli.IntFlag{Name: "max-logprobs", Value: 20, Usage: "most logprobs a token"},
			&cli.Int64Flag{Name: "kv-cache-memory-bytes", Usage: "memory of the cache of keys and values; default holds 32768 tokens, or one completion"},
			&cli.StringFlag{Name: "device", Value: "auto", Usage: "auto (CUDA where it is usable), cpu or cuda: where sampling computes"},
			&cli.StringFlag{Name: "dtype", Value: "auto", Usage: "auto (float32), float32 or bfloat16: type that sampling computes in"},
			&cli.StringFlag{Name: "logprobs-mode", Value: "raw_logprobs", Usage: "raw_logprobs or processed_logprobs (after temperature and truncation)"},
			&cli.StringFlag{Name: "tool-call-parser", Value: agents.DefaultParser, Usage: "form of tool calls: " + strings.Join(c.registries.Agents.Parsers(), ", ")},
			&cli.StringFlag{Name: "template-date", Usage: "`YYYY-MM-DD` that a chat template which asks for the day is told, or today; default is what the model was trained with, where its folder records it, else today"},
			&cli.BoolFlag{Name: "enable-auto-tool-choice", Usage: "as in vLLM; always on"},
			&cli.BoolFlag{Name: "weight-updates", Usage: "offer /collective_rpc reload_weights, which reads folders of this machine"},
			&cli.IntFlag{Name: "shutdown-timeout", Value: 5, Usage: "seconds that running requests get at the end, before they are aborted"},
		},
	}
}

// checkServe refuses flags before anything is loaded. parsers are the values of --tool-call-parser.
func checkServe(x *cli.Context, parsers []string) error {
	if err := httpserver.CheckKey(x.String("host"), x.String("host"), x.String("api-key")); err != nil {
		return usagef("--host %v", err)
	}
	switch {
	case x.Int("port") < 0 || x.Int("port") > 65535:
		return usagef("--port is %d; allowed: 0 to 65535", x.Int("port"))
	case x.Int("max-model-len") < 0 || x.IsSet("max-model-len") && x.Int("max-model-len") < 2:
		return usagef("--max-model-len is %d; it must be at least 2", x.Int("max-model-len"))
	case x.Int("max-num-seqs") < 1:
		return usagef("--max-num-seqs is %d; it must be at least 1", x.Int("max-num-seqs"))
	case x.Int("max-queue") < 1:
		return usagef("--max-queue is %d; it must be at least 1", x.Int("max-queue"))
	case x.Int("max-logprobs") < 1:
		return usagef("--max-logprobs is %d; it must be at least 1", x.Int("max-logprobs"))
	case x.IsSet("kv-cache-memory-bytes") && x.Int64("kv-cache-memory-bytes") < 1:
		return usagef("--kv-cache-memory-bytes is %d; it must be at least 1", x.Int64("kv-cache-memory-bytes"))
	case x.Int("shutdown-timeout") < 0:
		return usagef("--shutdown-timeout is %d; it must be at least 0", x.Int("shutdown-timeout"))
	}
	if date := x.String("template-date"); date != "" && date != today {
		if _, err := time.Parse(time.DateOnly, date); err != nil {
			return usagef("--template-date is %q; write YYYY-MM-DD, or today", date)
		}
	}
	for flag, allowed := range map[string][]string{
		"device": {"auto", "cpu", "cuda"}, "dtype": {"auto", "float", "float32", "bfloat16"}, "logprobs-mode": {"raw_logprobs", "processed_logprobs"}, "tool-call-parser": parsers,
	} {
		if !slices.Contains(allowed, x.String(flag)) {
			return usagef("--%s is %q; allowed: %s", flag, x.String(flag), strings.Join(allowed, ", "))
		}
	}
	if d := x.String("device"); !policy.HasDevice(d) {
		return usagef("--device is %s, but libtorch sees no CUDA device here; use auto or cpu (agentfly doctor says what is missing)", d)
	}
	return nil
}

func (c serveCommand) serve(x *cli.Context) error {
	path, err := one(x, "a folder, a .gguf or a hub id")
	if err == nil {
		err = checkServe(x, c.registries.Agents.Parsers())
	}
	if err != nil {
		return err
	}
	if err := checkModel(path); err != nil {
		return err
	}
	half := x.String("dtype") == "bfloat16"
	p, err := policy.Load(path, policy.Options{Device: x.String("device"), BFloat16: half}) // on a device the engine computes in the model's type
	if err != nil {
		return err
	}
	defer p.Close()
	if p.Device() != "cpu" {
		fmt.Fprintf(c.text, "sampling on %s\n", p.Device())
	}
	length := p.Config.MaxContext()
	if n := x.Int("max-model-len"); n > 0 {
		if err := p.Config.CheckLength(n); err != nil {
			return usagef("--max-model-len: %v; allowed: 2 to %d", err, length)
		}
		length = n
	}
	o := local.Options{MaxModelLen: length, MaxSequences: x.Int("max-num-seqs"), Decoder: p.Tokenizer, BFloat16: half}
	if n := x.Int64("kv-cache-memory-bytes"); n > 0 {
		token := cgo.CacheConfig{BFloat16: half}.TokenBytes(p.Config.NumLayers, p.Config.NumKVHeads, p.Config.HeadDim, p.Device() != "cpu")
		if n < token {
			return usagef("--kv-cache-memory-bytes is %d; one token takes %d, and the cache must hold a sequence of %d tokens", n, token, length)
		}
		o.CacheTokens = int(n / token)
	}
	engine, err := local.New(p.Model, o)
	if err != nil {
		return err
	}
	defer engine.Close()
	s, err := c.server(x, path, p, engine)
	if err != nil {
		return err
	}
	return c.listen(x, s)
}

// checkModel refuses, as input that is wrong, what is no model.
func checkModel(path string) error {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && filepath.Ext(path) != ".gguf" {
		return usagef("%s is a file, but no .gguf; agentfly serve takes a model's folder, a .gguf, a hub id or a run folder", path)
	}
	m, err := modelfile.Open(path)
	if err != nil {
		return usagef("%v", err)
	}
	m.Close()
	return nil
}

// server joins engine and text.
func (c serveCommand) server(x *cli.Context, path string, p *policy.Policy, engine *local.Engine) (*serve.Server, error) {
	o := serve.Options{
		Engine: engine, Tokenizer: p.Tokenizer, StopIDs: p.StopIDs, Models: x.StringSlice("served-model-name"), Root: path, Vocab: p.Config.VocabSize,
		APIKey: x.String("api-key"), RawLogprobs: x.String("logprobs-mode") == "raw_logprobs", MaxQueue: x.Int("max-queue"),
		MaxLogprobs: x.Int("max-logprobs"), Version: c.version, ToolParser: x.String("tool-call-parser"), Agents: c.registries.Agents,
		Warn: func(text string) { fmt.Fprintln(c.errOut, "agentfly: "+text) },
		Stats: func() serve.Stats {
			s := engine.Stats()
			return serve.Stats{
				Running: s.Running, Waiting: s.Waiting, CacheUsage: float64(s.UsedBlocks) / float64(s.Blocks),
				PrefixQueries: s.PromptTokens, PrefixHit: s.CachedTokens, Preemptions: s.Preemptions,
			}
		},
	}
	if x.Bool("weight-updates") {
		o.Reload = func(_ context.Context, path string) error { return p.Reload(path) }
	}
	if len(o.Models) == 0 {
		o.Models = []string{path}
		if abs, err := filepath.Abs(path); err == nil && abs == path {
			o.Models = append(o.Models, filepath.Base(path))
		}
	}
	renderer, err := newRenderer(p, x.String("template-date"))
	if err != nil { // text and token ids are served all the same
		fmt.Fprintf(c.text, "/v1/chat/completions refuses: %v\n", err)
		return serve.New(o)
	}
	if err := renderer.ToolsError(); err != nil {
		fmt.Fprintf(c.text, "/v1/chat/completions refuses tools: %v\n", err)
	}
	if renderer.ToolsInSystemPrompt() {
		fmt.Fprintln(c.text, "the chat template ignores tools: their schemas are written into the system prompt")
	}
	if p.TellsDate() {
		fmt.Fprintf(c.out, "the chat template tells the date: %s (--template-date)\n", p.TemplateDate)
	}
	o.Renderer, o.StopIDs = renderer, renderer.StopIDs() // the model's own among them
	return serve.New(o)
}

// today as --template-date is the day on which the server starts.
const today = "today"

// newRenderer renders with the day of the flag --template-date, else with the one of the training, else with today.
func newRenderer(p *policy.Policy, date string) (*masks.Renderer, error) {
	compiled, err := p.Template()
	if err != nil {
		return nil, err
	}
	if date == today || date == "" && p.TemplateDate == "" {
		date = time.Now().Format(time.DateOnly)
	}
	now, err := p.Now(date)
	if err != nil {
		return nil, err
	}
	return masks.NewRenderer(p.Tokenizer, compiled, masks.Options{StopIDs: p.StopIDs, Now: now, Markup: true})
}

// listen serves until the context ends; then running requests get their time, and are aborted.
func (c serveCommand) listen(x *cli.Context, s *serve.Server) error {
	defer s.Close()
	listener, err := net.Listen("tcp", net.JoinHostPort(x.String("host"), strconv.Itoa(x.Int("port"))))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	fmt.Fprintf(c.text, "serving %s on http://%s\n", x.Args().First(), listener.Addr())
	service := httpserver.Service{
		Handler: s, Errors: c.errOut, Grace: time.Duration(x.Int("shutdown-timeout")) * time.Second, Abort: s.Close,
	}
	if err := service.Serve(x.Context, listener); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
