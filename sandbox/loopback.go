//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// mostConnections is how many of a program's connections are accepted at once: each takes a descriptor of this process.
const mostConnections = 64

// loopbackTimeout bounds the making of a listener.
const loopbackTimeout = 10 * time.Second

// loopback is a listener of this process on the loopback of a tree's own network. Nothing forwards: a socket stays in the network in which it was made,
// whoever accepts on it. A process that joins that network makes it and hands it over; it joins no other namespace of the tree, so the tree never sees it.
// This process cannot join by itself: only one with a single thread may enter a user namespace.
func (b *bubblewrap) loopback(ctx context.Context, tree, port int) (net.Listener, error) {
	network, users, err := networkOf(tree)
	if err != nil {
		return nil, err
	}
	defer network.Close()
	defer users.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "listener"), os.NewFile(uintptr(pair[1]), "listener")
	defer ours.Close()
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(ctx, loopbackTimeout)
	defer cancel()
	// 3 the pair, 4 the network, 5 its users, 6 this program
	cmd := exec.CommandContext(ctx, b.nsenter, "--preserve-credentials", "--user=/proc/self/fd/5", "--net=/proc/self/fd/4", "--", "/proc/self/fd/6", helperName, listenWord, strconv.Itoa(port))
	cmd.Dir, cmd.Env = "/", helperEnvironment()
	cmd.ExtraFiles = []*os.File{theirs, network, users, self}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("listen on the loopback inside: %w: %s", err, lastLine(said.Bytes()))
	}
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, fmt.Errorf("listen on the loopback inside: %w", err)
	}
	fd, err := handedOver(rights[:n])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, mostConnections), nil
}

// networkOf opens the network namespace of a process, and the user namespace that it belongs to.
func networkOf(pid int) (network, users *os.File, err error) {
	if network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
		return nil, nil, err
	}
	own, err := os.Stat("/proc/self/ns/net")
	if err == nil {
		var its os.FileInfo
		if its, err = network.Stat(); err == nil && os.SameFile(own, its) { // the process is gone, and its number another's
			err = errors.New("the program has no network of its own")
		}
	}
	if err == nil {
		var fd int
		if fd, err = unix.IoctlRetInt(int(network.Fd()), unix.NS_GET_USERNS); err == nil {
			return network, os.NewFile(uintptr(fd), "users"), nil
		}
	}
	_ = network.Close()
	return nil, nil, err
}

// handedOver is the one descriptor of a message.
func handedOver(rights []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(errors.New("no listener came"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(errors.New("no listener came"), err)
	}
	return fds[0], nil
}

// handOver makes a listener in the network of this process, and hands it to who has the other end of the pair.
func handOver(pair int, port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1); err != nil { // bwrap may not have given the loopback its address yet
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Listen(fd, 128); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return unix.Sendmsg(pair, []byte{0}, unix.UnixRights(fd), nil, 0)
}

// helperEnvironment is what this program needs to start as a helper.
func helperEnvironment() []string {
	out := []string{}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "LD_LIBRARY_PATH=") {
			out = append(out, v)
		}
	}
	return out
}
