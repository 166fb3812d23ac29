package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// inspectCommands answer each line of standard input with one of standard output.
type inspectCommands struct{ *env }

func (c inspectCommands) command() *cli.Command {
	return &cli.Command{Name: "inspect", Usage: "hold the program against another one: JSON lines in and out", Subcommands: []*cli.Command{
		{Name: "tokens", Usage: `{"text": s} or {"ids": […]} -> ids and text`, Flags: []cli.Flag{modelFlag()}, Action: c.tokens},
		{Name: "template", Usage: `{"messages": […], "tools": […], "add_generation_prompt": b} -> text and ids`, Flags: []cli.Flag{modelFlag()}, Action: c.template},
		{Name: "score", Usage: `{"ids": […]} -> logprobs and entropy of each next token, from the trainer's forward`, Flags: []cli.Flag{
			modelFlag(),
			&cli.StringFlag{Name: "dtype", Value: "fp32", Usage: "fp32 or bfloat16: what the forward computes in"},
			&cli.BoolFlag{Name: "engine", Usage: "from the local engine instead, on the same device; it gives no entropy"},
		}, Action: c.score},
		{Name: "loss", Usage: "algorithm and trajectories -> advantages, loss, gradient", Action: c.loss},
		{Name: "trajectory", Usage: "the stored trajectories of a run, token by token", Flags: trajectoryFlags(), Action: c.trajectory},
		{Name: "tree", Usage: "the groups of a run whose trajectories branch, drawn", Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", TakesFile: true, Usage: "run folder `DIR`"}, &cli.StringFlag{Name: "id", Usage: "only the group of this trajectory"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N` groups"},
		}, Action: c.tree},
	}}
}

const maxLine = 64 << 20 // bytes of one input line

// lines calls f for every line of the input and prints what it returns. An error of f becomes {"error": …} for that line.
func (c inspectCommands) lines(f func(line []byte) (any, error)) error {
	s := bufio.NewScanner(c.in)
	s.Buffer(make([]byte, 1<<16), maxLine)
	for s.Scan() {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		answer, err := f(s.Bytes())
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := c.print(answer); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("inspect: standard input: %w", err)
	}
	return nil
}

// strict decodes one JSON object.
func strict(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the line is not understood: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the line holds more than one JSON object")
	}
	return nil
}

func givenModel(x *cli.Context) (string, error) {
	if x.String("model") == "" {
		return "", usagef("agentfly inspect %s needs --model with a folder, a .gguf or a hub id", x.Command.Name)
	}
	return x.String("model"), nil
}

func (c inspectCommands) tokens(x *cli.Context) error {
	path, err := givenModel(x)
	if err != nil {
		return err
	}
	text, err := policy.LoadText(path)
	if err != nil {
		return err
	}
	return c.lines(func(line []byte) (any, error) {
		var in struct {
			Text *string `json:"text"`
			IDs  []int32 `json:"ids"`
		}
		if err := strict(line, &in); err != nil {
			return nil, err
		}
		switch {
		case in.Text != nil && in.IDs == nil:
			ids := text.Tokenizer.Encode(*in.Text)
			if ids == nil {
				ids = []int32{}
			}
			return map[string]any{"ids": ids, "text": text.Tokenizer.Decode(ids, false)}, nil
		case in.Text == nil && in.IDs != nil:
			return map[string]any{"text": text.Tokenizer.Decode(in.IDs, false)}, nil
		}
		return nil, errors.New("give either text or ids")
	})
}

func (c inspectCommands) template(x *cli.Context) error {
	path, err := givenModel(x)
	if err != nil {
		return err
	}
	text, err := policy.LoadText(path)
	if err != nil {
		return err
	}
	compiled, err := text.Template()
	if err != nil {
		return err
	}
	return c.lines(func(line []byte) (any, error) {
		var in struct {
			Messages            json.RawMessage `json:"messages"`
			Tools               json.RawMessage `json:"tools"`
			AddGenerationPrompt bool            `json:"add_generation_prompt"`
		}
		if err := strict(line, &in); err != nil {
			return nil, err
		}
		rendered, err := compiled.RenderJSON(in.Messages, in.Tools, jinja.Input{AddGenerationPrompt: in.AddGenerationPrompt, Now: time.Now()})
		if err != nil {
			return nil, err
		}
		return map[string]any{"text": rendered, "ids": text.Tokenizer.Encode(rendered)}, nil
	})
}

func (c inspectCommands) score(x *cli.Context) error {
	path, err := givenModel(x)
	if err != nil {
		return err
	}
	if d := x.String("dtype"); !slices.Contains([]string{"fp32", "auto", "bfloat16"}, d) {
		return usagef("--dtype is %q; allowed: fp32, bfloat16", d)
	}
	p, err := policy.LoadWeights(path, policy.Options{BFloat16: x.String("dtype") == "bfloat16"}) // ids need no tokenizer
	if err != nil {
		return err
	}
	defer p.Close()
	var engine *local.Engine
	if x.Bool("engine") {
		if engine, err = local.New(p.Model, local.Options{MaxModelLen: min(p.Config.MaxContext(), scoreContext), BFloat16: x.String("dtype") == "bfloat16"}); err != nil {
			return err
		}
		defer engine.Close()
	}
	return c.lines(func(line []byte) (any, error) {
		var in struct {
			IDs []int32 `json:"ids"`
		}
		if err := strict(line, &in); err != nil {
			return nil, err
		}
		if err := p.Config.CheckLength(len(in.IDs)); err != nil {
			return nil, err
		}
		if engine != nil {
			logprobs, err := engine.Logprobs(x.Context, in.IDs)
			return map[string]any{"logprobs": logprobs}, err
		}
		logprobs, entropy, err := trainer.LogprobsOf(p.Model, in.IDs, 1)
		if err != nil {
			return nil, err
		}
		return map[string]any{"logprobs": logprobs, "entropy": entropy}, nil
	})
}

// scoreContext bounds the tokens of a line for --engine: its cache takes memory for so many.
const scoreContext = 32768

func (c inspectCommands) loss(x *cli.Context) error {
	return algorithms.InspectLoss(x.Context, c.in, c.out, c.registries.Algorithms)
}

// view colours a trajectory: dim what was not sampled, green to red what was, by its logprob. plain: what was sampled stands in brackets
// instead.
func view(r store.Record, decode func([]int32) string, plain bool) string {
	var b strings.Builder
	t := r.Trajectory
	fmt.Fprintf(&b, "== %s  reward %s  %s\n", terminal.Text(t.ID), rewardOf(t), terminal.Text(string(t.StopReason)))
	for _, s := range t.Samples {
		for i, text := range tokenizer.Texts(s.TokenIDs, decode) {
			colour, text := "2", terminal.Text(text)
			if s.ResponseMask[i] {
				switch p := s.SamplingLogprobs[i]; {
				case p > -0.1:
					colour = "32"
				case p > -1:
					colour = "33"
				default:
					colour = "31"
				}
			}
			if plain {
				if s.ResponseMask[i] && (i == 0 || !s.ResponseMask[i-1]) {
					b.WriteString("⟦")
				}
				b.WriteString(text)
				if s.ResponseMask[i] && (i+1 == len(s.TokenIDs) || !s.ResponseMask[i+1]) {
					b.WriteString("⟧")
				}
				continue
			}
			fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m", colour, text)
		}
		b.WriteString("\n")
	}
	return b.String()
}
