package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines/vllm"
)

// groupTimeout is how long a server's worker may keep the trainer waiting in one broadcast.
const groupTimeout = time.Minute

// collectives makes process groups of this process and a server's workers over PyTorch's c10d. The workers run
// engines/vllm/extension/agentfly_transfer.py, which speaks the protocol of cgo's groups.
type collectives struct{}

// Meet implements vllm.Collectives.
func (collectives) Meet(ctx context.Context, backend, server string, world int) (vllm.Meeting, error) {
	if backend != "gloo" {
		return vllm.Meeting{}, fmt.Errorf("weights over %s need CUDA: this program has no %s process groups; use disk, transfer or gloo", backend, backend)
	}
	address, err := addressFor(ctx, server)
	if err != nil {
		return vllm.Meeting{}, err
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return vllm.Meeting{}, err
	}
	port := l.Addr().(*net.TCPAddr).Port // a TCP listener's
	if err := l.Close(); err != nil {
		return vllm.Meeting{}, err
	}
	return vllm.Meeting{Address: address, Port: port, Join: func(context.Context) (vllm.Group, error) { // it has a deadline of its own
		g, err := cgo.NewGroup(cgo.GroupConfig{World: world, Address: address, Port: port, Serve: true, Device: "cpu", Timeout: groupTimeout})
		if err != nil {
			return nil, err
		}
		return sender{g}, nil
	}}, nil
}

// addressFor is this machine's address as the server sees it.
func addressFor(ctx context.Context, server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(u.Hostname(), port)) // nothing is sent
	if err != nil {
		return "", err
	}
	address := c.LocalAddr().(*net.UDPAddr) // of a UDP connection
	err = c.Close()
	if address.IP.IsLoopback() {
		return "127.0.0.1", err
	}
	return address.IP.String(), err
}

// sender is rank 0's end.
type sender struct{ group *cgo.Group }

func (s sender) Send(ctx context.Context, chunk []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.group.Broadcast(0, chunk)
	if errors.Is(err, cgo.ErrRank) { // the worker's own reason comes with the server's answer
		return fmt.Errorf("gloo: %w", err)
	}
	return err
}

func (s sender) Close() error { return s.group.Close() }
