package code

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/workspace"
)

// waiting is a shell that reads a mark and a script from standard input, each up to a zero byte, and writes mark and status after what
// the script writes: the end of the processes is not waited for, and no second shell is started.
const waiting = `IFS= read -r -d "" mark; IFS= read -r -d "" script; (eval "unset mark script; $script") </dev/null 2>&1; printf "%s%d\n" "$mark" $?`

// command is a shell that was started ahead.
type command struct{ p sandbox.Process }

func (c *command) kill() { _ = c.p.Kill() }

type shell struct{ base }

// NewShell makes the tool shell.
func NewShell(ctx context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
	if err := resources.Decode(params, &struct{}{}); err != nil {
		return nil, err
	}
	b, err := open(ctx, r)
	if err != nil {
		return nil, err
	}
	t := &shell{base: *b}
	t.spec = tools.Spec{
		Name: "shell", Stateful: true, Replays: true,
		Description: "Runs a bash script and returns what it writes. Every call starts a new shell in the same folder; files stay.",
		Parameters:  json.RawMessage(`{"type":"object","properties":{"command":{"type":"string","description":"bash script"}},"required":["command"],"additionalProperties":false}`),
	}
	t.spaces.Ahead(ahead, func(ctx context.Context, w *workspace.Workspace) error {
		s, err := t.shells(w)
		if err != nil {
			return err
		}
		return s.fill(ctx)
	})
	return []tools.Tool{t}, nil
}

func (t *shell) shells(w *workspace.Workspace) (*ready[*command], error) {
	c, err := w.Attach("shell", func() (io.Closer, error) {
		return newReady(func(ctx context.Context) (*command, error) {
			p, err := t.box.Start(context.WithoutCancel(ctx), sandbox.Program{
				Args: []string{"bash", "-c", waiting}, Env: threads, Workspace: w.Dir(), Limits: sandbox.Limits{CPU: callCPU},
			})
			if err != nil {
				return nil, err
			}
			return &command{p}, nil
		}), nil
	})
	if err != nil {
		return nil, err
	}
	return c.(*ready[*command]), nil
}

func (t *shell) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	var args struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return tools.Observation{}, fmt.Errorf("the arguments cannot be read: %w", err)
	}
	if strings.ContainsRune(args.Command, 0) {
		return tools.Observation{}, errors.New("the command holds a zero byte; leave it out")
	}
	w, err := t.spaces.Get(c.Trajectory)
	if err != nil {
		return tools.Observation{}, &tools.BrokenError{Text: "there is no workspace"}
	}
	shells, err := t.shells(w)
	if err != nil {
		return tools.Observation{}, err
	}
	ctx, cancel, left := within(ctx)
	defer cancel()
	s, err := shells.take(ctx)
	if err != nil {
		if errors.Is(err, errOver) || ctx.Err() != nil {
			return tools.Observation{}, err
		}
		return tools.Observation{}, &tools.BrokenError{Text: t.hide(err.Error(), w)}
	}
	defer shells.drop(s)
	output, status, err := s.run(ctx, args.Command)
	text := strings.TrimRight(t.hide(output, w), "\n")
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return observe(text, failure(ctx, ctx.Err(), left, "").Error())
	}
	if ctx.Err() != nil {
		return tools.Observation{}, ctx.Err()
	}
	if err == nil && status == 128+int(syscall.SIGXCPU) { // the sandbox's limit; with another status the script came to its end
		err = errors.New("it used too much processor time")
	}
	switch {
	case err != nil:
		_, err = observe(text, "the command was stopped: "+err.Error())
		return tools.Observation{}, err
	case status != 0:
		text = strings.TrimLeft(fmt.Sprintf("%s\n[exit status %d]", text, status), "\n")
	case text == "":
		text = "(no output)"
	}
	return tools.Observation{Text: text, Info: map[string]any{"exit": status}}, nil
}

// run feeds the script and reads what it writes, and its status; of too much the end is left out.
func (c *command) run(ctx context.Context, script string) (string, int, error) {
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	mark := "\n" + rand.Text()
	if _, err := io.WriteString(c.p.Stdin(), mark+"\x00"+script+"\x00"); err != nil {
		return "", 0, ended(c.p.Wait())
	}
	var kept, tail []byte // tail may hold the beginning of the mark
	dropped := 0
	b := make([]byte, 32<<10)
	for {
		n, err := c.p.Stdout().Read(b)
		tail = append(tail, b[:n]...)
		before, after, found := bytes.Cut(tail, []byte(mark))
		line, _, whole := bytes.Cut(after, []byte("\n"))
		if found && !whole && err == nil {
			continue
		}
		sure := before
		if !found && err == nil {
			sure = tail[:max(0, len(tail)-len(mark))]
		}
		room := min(len(sure), outputLimit-len(kept))
		kept, dropped = append(kept, sure[:room]...), dropped+len(sure)-room
		tail = tail[len(sure):]
		if !whole && err == nil {
			continue
		}
		text := string(kept)
		if dropped > 0 {
			text = string(wording.WholeRunes(kept))
			dropped += len(kept) - len(text)
			text += fmt.Sprintf("\n[%d bytes left out]", dropped)
		}
		if status, bad := strconv.Atoi(string(line)); whole && bad == nil {
			return text, status, nil
		}
		return text, 0, ended(c.p.Wait())
	}
}
