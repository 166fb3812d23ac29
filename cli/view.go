package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	pages "github.com/agentfly/agentfly/view"
)

// viewAddress is where the page is served unless the user says otherwise.
const viewAddress = "127.0.0.1:8200"

// viewCommand serves the page on which runs are looked at.
type viewCommand struct{ *env }

func (c viewCommand) command() *cli.Command {
	return &cli.Command{
		Name: "view", Usage: "look at runs in a browser, also while they train", ArgsUsage: "[RUN|FOLDER]", Action: c.serve,
		Description: "Serves a page with the curves, trajectories and tokens of a run folder, or of all run folders in a folder; without one of those in runs.\n" +
			"It reads; with --api-key its page can pause and stop runs, too. See docs/view.md.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: viewAddress, Usage: "`HOST:PORT`; port 0 takes a free one"},
			&cli.StringFlag{Name: "api-key", EnvVars: []string{"AGENTFLY_API_KEY"}, Usage: "`KEY` that a browser must give once; needed where other machines reach the address"},
		},
	}
}

func (c viewCommand) serve(x *cli.Context) error {
	dir := "runs"
	if x.NArg() > 0 {
		var err error
		if dir, err = one(x, "a run folder or a folder of them"); err != nil {
			return err
		}
	}
	address, key := x.String("listen"), x.String("api-key")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--listen is %q; it must be HOST:PORT, such as 127.0.0.1:8200", address)
	}
	if err := httpserver.CheckKey("--listen "+address, host, key); err != nil {
		return usagef("%v", err)
	}
	s, err := c.page(dir, key, "")
	if err != nil {
		return job.InputError(err)
	}
	defer s.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("view: %w; give another address with --listen, port 0 takes a free one", err)
	}
	page := pageAt(l.Addr().String())
	if key != "" {
		page += "?key=" + url.QueryEscape(key)
	}
	fmt.Fprintf(c.text, "the page of %s: %s (end with Ctrl-C)\n", dir, page)
	if err := s.Serve(x.Context, l); err != nil {
		return fmt.Errorf("view: %w", err)
	}
	return nil
}

// pageAt is the page of a server that listens on an address. One that listens on all of the machine's has the machine's name.
func pageAt(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			address = net.JoinHostPort(name, port)
		}
	}
	return "http://" + address + "/"
}

func (c viewCommand) page(dir, key, controlKey string) (*pages.Server, error) {
	return pages.New(dir, pages.Options{
		Key: key, ControlKey: controlKey, Errors: c.errOut, Decode: func(dir string) (func([]int32) string, bool) { return orchestrator.Decoder(dir, c.registries.Agents) },
	})
}

// beside serves the page of a run beside its training, on this machine alone, until stop is called. It says where, or why it cannot.
// Who opens the address that it says can pause and stop the run, too: the address has a key, which is this run's alone.
func (c viewCommand) beside(ctx context.Context, dir string, say func(line string)) (stop func()) {
	key := rand.Text()
	s, err := c.page(dir, "", key)
	if err != nil {
		say(fmt.Sprintf("--view: %v; the run goes on without its page", err))
		return func() {}
	}
	l, err := net.Listen("tcp", viewAddress)
	if err != nil { // another page has it
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		say(fmt.Sprintf("--view: %v; the run goes on without its page", errors.Join(err, s.Close())))
		return func() {}
	}
	say("the page of this run while it trains: http://" + l.Addr().String() + "/?key=" + key)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // an interrupted run finishes its step, and is looked at meanwhile
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(s.Serve(ctx, l), s.Close()) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			say(fmt.Sprintf("--view: the page ended: %v", err))
		}
	}
}
