package weights

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
)

// groupTimeout is how long a server's worker may keep the trainer waiting in one broadcast.
const groupTimeout = time.Minute

// collectives makes process groups of this process and a server's workers. Over Gloo (PyTorch's c10d) the workers run
// engines/vllm/extension/agentfly_transfer.py, which speaks the protocol of cgo's groups; over NCCL vLLM's own code.
type collectives struct {
	device string // of the trainer: what NCCL sends from
	nccl   string // library; "": cgo finds it
}

// Meet implements vllm.Collectives.
func (c collectives) Meet(ctx context.Context, backend, server string, world int) (vllm.Meeting, error) {
	switch backend {
	case "gloo":
		return meetGloo(ctx, server, world)
	case "nccl":
		return c.meetNCCL(world)
	}
	return vllm.Meeting{}, fmt.Errorf("there are no process groups over %s; use disk, transfer, gloo or nccl", backend)
}

// meetNCCL makes a group whose id goes to the workers with the server's request.
func (c collectives) meetNCCL(world int) (vllm.Meeting, error) {
	id, err := cgo.NCCLUniqueID(c.nccl)
	if err != nil {
		return vllm.Meeting{}, err
	}
	return vllm.Meeting{UniqueID: id, Join: func(ctx context.Context) (vllm.Group, error) {
		g, err := cgo.JoinNCCL(ctx, cgo.NCCLConfig{Library: c.nccl, ID: id, World: world, Device: c.device, Timeout: groupTimeout})
		if err != nil {
			return nil, err
		}
		return ncclSender{g}, nil
	}}, nil
}

func meetGloo(ctx context.Context, server string, world int) (vllm.Meeting, error) {
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
		return glooSender{g}, nil
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

// glooSender is rank 0's end of a Gloo group.
type glooSender struct{ group *cgo.Group }

func (s glooSender) Send(ctx context.Context, chunk []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.group.Broadcast(0, chunk)
	if errors.Is(err, cgo.ErrRank) { // the worker's own reason comes with the server's answer
		return fmt.Errorf("gloo: %w", err)
	}
	return err
}

func (s glooSender) Close() error { return s.group.Close() }

// ncclSender is rank 0's end of an NCCL group.
type ncclSender struct{ group *cgo.NCCLGroup }

func (s ncclSender) Send(ctx context.Context, chunk []byte) error {
	return s.group.Broadcast(ctx, 0, chunk)
}

// SendPacked implements vllm.PackedGroup: the chunk goes from the device where it lies.
func (s ncclSender) SendPacked(ctx context.Context, chunk engines.Packed) error {
	p, ok := chunk.(packed)
	if !ok {
		return fmt.Errorf("nccl: %T is no buffer of the device", chunk)
	}
	return s.group.BroadcastStaging(ctx, 0, p.buffer, p.n)
}

func (s ncclSender) Close() error { return s.group.Close() }
