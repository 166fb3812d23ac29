package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/trajectory"
)

// chatCommand lets a person talk to a policy.
type chatCommand struct{ *env }

func (c chatCommand) command() *cli.Command {
	return &cli.Command{
		Name: "chat", Usage: "talk to a policy, with the tools of its job", ArgsUsage: "MODEL|RUN|JOB", Action: c.chat,
		Description: "A job or a run brings its system prompt, tools and sampling; a model is talked to alone. The line /new begins a new conversation,\n" +
			"Ctrl-D ends. From a pipe every line is a message, and the replies are what is written.",
		Flags: []cli.Flag{
			modelFlag(), &cli.Uint64Flag{Name: "seed", Usage: "of what is sampled"}, setFlag(),
			&cli.StringFlag{Name: "system", Usage: "system prompt `TEXT`, for a model"},
			&cli.Float64Flag{Name: "temperature", Value: 0.7, Usage: "for a model; 0 takes the most likely token. A job has its own (rollout.temperature)"},
			&cli.IntFlag{Name: "max-new-tokens", Value: 512, Usage: "of a reply of a model; a job has its own (rollout.max_new_tokens)"},
		},
	}
}

// open finds out what is talked to.
func (c chatCommand) open(x *cli.Context) (j *job.Job, model string, err error) {
	path, err := one(x, "a model, a run folder or a job file")
	if err != nil {
		return nil, "", err
	}
	ext := filepath.Ext(path)
	if info, missing := os.Stat(path); overview.Is(path) || ext == ".yaml" || ext == ".yml" || missing == nil && !info.IsDir() && ext != ".gguf" {
		for _, flag := range []string{"system", "temperature", "max-new-tokens"} {
			if x.IsSet(flag) {
				return nil, "", usagef("--%s is of a chat with a model; a job has its own: --set agent.system, rollout.temperature or rollout.max_new_tokens", flag)
			}
		}
		return c.jobAndModel(x, "a model, a run folder or a job file")
	}
	if x.String("model") != "" || len(x.StringSlice("set")) > 0 {
		return nil, "", usagef("--model and --set are of a chat with a job; %s is a model", path)
	}
	if x.Int("max-new-tokens") < 1 {
		return nil, "", usagef("--max-new-tokens is %d; it must be at least 1", x.Int("max-new-tokens"))
	}
	if err := checkModel(path); err != nil {
		return nil, "", err
	}
	said := map[string]string{"--model": path, "--system": x.String("system")}
	text, err := yaml.Marshal(map[string]any{
		"version": 1, "name": "chat", "seed": x.Uint64("seed"), "model": map[string]any{"path": "${--model}"},
		"agent":   map[string]any{"system": "${--system}", "max_turns": 1},
		"rewards": []string{"final_answer"},
		"rollout": map[string]any{"max_new_tokens": x.Int("max-new-tokens"), "max_tokens": 1 << 17, "temperature": x.Float64("temperature")},
	})
	if err != nil {
		return nil, "", err
	}
	j, err = job.Parse("the chat", text, job.Options{
		Env: func(name string) (string, bool) { // the value of a ${NAME} is taken letter by letter
			value, ok := said[name]
			return value, ok
		},
		Agents: c.registries.Agents,
	})
	return j, path, err
}

func (c chatCommand) chat(x *cli.Context) (err error) {
	j, model, err := c.open(x)
	if err != nil {
		return err
	}
	j.Rollout.Watchdog = 0
	p, err := orchestrator.NewPlayer(x.Context, j, model, c.registries, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	t := talk{chatCommand: c, player: p, asks: c.canAsk() && terminal.Is(c.out), colours: terminal.Colours(c.out)}
	if t.asks {
		c.tell(p.Known())
		fmt.Fprintf(c.text, "%s: a line is a message, /new begins a new conversation, Ctrl-D ends\n", x.Args().First())
	}
	return t.loop(x.Context)
}

// talk is one conversation after the other.
type talk struct {
	chatCommand
	player  *orchestrator.Player
	asks    bool // a person sits at a terminal
	colours bool
	history []trajectory.Message
	replies int
}

// longestMessage bounds a line of the input, in bytes.
const longestMessage = 1 << 20

// loop reads messages and writes replies until the input or the context ends.
func (t *talk) loop(ctx context.Context) error {
	lines, failed := make(chan string), make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go func() { // a read that waits for a person cannot be stopped: it ends with the process
		s := bufio.NewScanner(t.in)
		s.Buffer(make([]byte, 1<<16), longestMessage)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-done:
				return
			}
		}
		failed <- s.Err()
		close(lines)
	}()
	for {
		if t.asks {
			fmt.Fprint(t.out, t.paint("1", "> "))
		}
		select {
		case <-ctx.Done():
			return t.left()
		case line, ok := <-lines:
			if !ok {
				if err := <-failed; err != nil {
					return fmt.Errorf("chat: standard input: %w (a message is one line of at most %d bytes)", err, longestMessage)
				}
				return t.left()
			}
			if err := t.say(ctx, strings.TrimSpace(line)); err != nil {
				return err
			}
		}
	}
}

// left ends the line of the prompt.
func (t *talk) left() error {
	if !t.asks {
		return nil
	}
	_, err := io.WriteString(t.out, "\n")
	return err
}

func (t *talk) paint(colour, text string) string {
	return (&page{colours: t.colours}).paint(colour, text)
}

// say sends a message and writes the reply as it is sampled.
func (t *talk) say(ctx context.Context, message string) error {
	switch message {
	case "":
		return nil
	case "/new":
		t.history = nil
		return nil
	}
	history := append(t.history, trajectory.Text("user", message))
	open := false // a line that was begun
	var wrote error
	write := func(s string) {
		if wrote == nil && s != "" {
			_, wrote = io.WriteString(t.out, s)
			open = !strings.HasSuffix(s, "\n")
		}
	}
	end := func() {
		if open {
			write("\n")
		}
	}
	said, got := t.player.Reply(ctx, history, t.replies, orchestrator.Listener{
		Text: func(piece string) { write(terminal.Text(piece)) },
		Result: func(r trajectory.ToolResult) {
			end()
			line := fmt.Sprintf("  %s %s", r.Call.Name, r.Call.Arguments)
			if r.Call.Name == "" { // it could not be read
				line = " "
			}
			line += fmt.Sprintf(" → %s", wording.Clip(strings.TrimSpace(r.Observation), 400))
			write(t.paint("2", strings.ReplaceAll(terminal.Text(line), "\n", "\n  ")) + "\n")
		},
	})
	t.replies++
	end()
	if ctx.Err() != nil {
		return wrote
	}
	t.tell(t.player.Notes())
	switch {
	case got.Failed() && t.asks: // the message is forgotten, and the conversation goes on
		fmt.Fprintf(t.errOut, "agentfly: %s; /new begins a new conversation\n", strings.TrimPrefix(got.Err, "orchestrator: "))
	case got.Failed():
		return errors.New("chat: " + strings.TrimPrefix(got.Err, "orchestrator: "))
	case got.StopReason == trajectory.StopMaxTokens:
		fmt.Fprintln(t.errOut, "note: the reply was cut at its longest (rollout.max_new_tokens, --max-new-tokens)")
		fallthrough
	default:
		t.history = append(history, said...)
	}
	return wrote
}
