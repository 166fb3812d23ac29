package vllm

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // the extension
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/procgroup"
)

//go:embed extension/agentfly_transfer.py
var extension []byte

// ServeOptions say how a server is started. A zero value takes the default in brackets.
type ServeOptions struct {
	Command     string        // [vllm]
	Model       string        // folder or hub id
	Port        int           // on 127.0.0.1 [a free one]
	MaxModelLen int           // [the model's]
	DType       string        // [float32]
	LoRARank    int           // largest rank of the adapters that the server takes [none]
	MaxLogprobs int           // likeliest tokens that a request may ask for [MaxLogprobs]
	CPU         bool          // this machine's vLLM is the one for CPUs
	Devices     []int         // of CUDA, as this process numbers them [all that it sees]
	Env         []string      // NAME=VALUE; it overrides what the server inherits
	Args        []string      // more arguments
	Timeout     time.Duration // until it answers [5 min]
	Restarts    int           // Keep: most starts after ends that follow each other within 10 minutes [3]; -1 for none
	Backoff     time.Duration // Keep: before the first of them, then doubled up to a minute [1 s]
	Sleep       bool          // the server shall be able to give its device memory back
	APIKey      string        // that every route but /health, /ping and /metrics asks for [a new one]
	Backend     string        // of its weight transfer: agentfly (shared memory, gloo) or nccl [agentfly]
	Folder      string        // for the log and the extension; made if it is not there
}

// LogFile is the server's output in ServeOptions.Folder. A new start appends to it.
const LogFile = "vllm.log"

// Process is a vLLM server that this process started.
type Process struct {
	URL    string
	APIKey string // that it asks for
	Log    string // file of its output

	group *procgroup.Group
	ended chan struct{}
	err   error // of the process; read after ended
	once  sync.Once
}

// ServeArgs are the arguments of `vllm serve` that the engine needs.
func ServeArgs(o ServeOptions) []string {
	args := []string{
		"serve", o.Model, "--served-model-name", "policy", "--host", "127.0.0.1", "--port", strconv.Itoa(o.Port),
		"--dtype", o.DType, "--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm",
		"--enable-prompt-tokens-details", "--middleware", "agentfly_transfer.Guard",
		"--weight-transfer-config", fmt.Sprintf(`{"backend": %q}`, o.Backend), "--worker-extension-cls", "agentfly_transfer.Extension",
	}
	if o.MaxModelLen > 0 {
		args = append(args, "--max-model-len", strconv.Itoa(o.MaxModelLen))
	}
	if o.MaxLogprobs > 0 {
		args = append(args, "--max-logprobs", strconv.Itoa(o.MaxLogprobs))
	}
	if o.LoRARank > 0 { // without adapters the flag costs memory and slower kernels
		args = append(args, "--enable-lora", "--max-lora-rank", strconv.Itoa(o.LoRARank), "--max-loras", "2")
	}
	if o.Sleep && !o.CPU { // on a CPU the flag is refused, and the routes do all but free memory
		args = append(args, "--enable-sleep-mode")
	}
	if o.CPU {
		// 0.32.0 dies on a CPU when it splits the prompt of a request with a seed (CPU Generator does not use offset)
		args = append(args, "--no-enable-chunked-prefill", "--enforce-eager", "--kv-cache-memory-bytes", strconv.Itoa(64<<20), "--max-num-seqs", "64")
	}
	return append(args, o.Args...)
}

// Serve starts a server and returns when it answers. The caller closes it. Its output goes to a file, whose end is part of
// the error when it does not come up.
func Serve(ctx context.Context, o ServeOptions) (*Process, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("vllm: serve: %w", err)
	}
	env, err := environment(os.Environ(), o)
	if err != nil {
		return nil, fmt.Errorf("vllm: serve: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(o.Folder, LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("vllm: serve: %w", err)
	}
	defer log.Close()
	p := &Process{URL: "http://127.0.0.1:" + strconv.Itoa(o.Port), APIKey: o.APIKey, Log: log.Name(), ended: make(chan struct{})}
	c := exec.Command(o.Command, ServeArgs(o)...)
	c.Stdout, c.Stderr, c.Env = log, log, env
	if p.group, err = procgroup.Start(c, syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("vllm: serve: %w; install it with scripts/vllm_install.sh, or give the command in engine.serve.command", err)
	}
	go func() {
		p.err = p.group.Wait() // its workers, which hold the port and the device, end with it
		close(p.ended)
	}()
	if err := p.await(ctx, o.Timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("vllm: serve: %w; its log %s ends: %s", err, p.Log, tail(p.Log)), p.Close())
	}
	return p, nil
}

func (o *ServeOptions) complete() error {
	if o.APIKey == "" {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // it never fails
		o.APIKey = hex.EncodeToString(key)
	}
	if o.Command == "" {
		o.Command = "vllm"
	}
	if o.DType == "" {
		o.DType = "float32"
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	if o.Restarts == 0 {
		o.Restarts = 3
	}
	if o.Backoff == 0 {
		o.Backoff = time.Second
	}
	if o.Backend == "" {
		o.Backend = "agentfly"
	}
	if o.Port == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		o.Port = l.Addr().(*net.TCPAddr).Port // a TCP listener's
		if err := l.Close(); err != nil {
			return err
		}
	}
	if o.Folder == "" {
		return errors.New("a folder for the log is needed")
	}
	var err error
	if o.Folder, err = filepath.Abs(o.Folder); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Folder, "agentfly_transfer.py"), extension, 0o644)
}

// await returns when /health answers 200.
func (p *Process) await(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if status, err := p.health(ctx); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the server ended: %w", orExit(p.err))
		case <-ctx.Done():
			return fmt.Errorf("the server did not answer within %v: %w", timeout, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// awaitEnd returns when the server has ended, and why. One whose engine died may wait for good for what the engine had begun: it says so, then it
// listens no more, and is killed.
func (p *Process) awaitEnd(ctx context.Context) (why, err error) {
	const every, most = time.Second, 5 // looks in a row
	for dead := 0; dead < most; dead++ {
		select {
		case <-p.ended:
			return orExit(p.err), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(every):
		}
		if status, err := p.health(ctx); status != http.StatusServiceUnavailable && !errors.Is(err, syscall.ECONNREFUSED) {
			dead = -1
		}
	}
	p.Kill()
	return fmt.Errorf("%w, by AgentFly: its engine died, and it did not end by itself within %v", orExit(p.err), most*every), nil
}

// looker asks for /health. It keeps no connection: a server that is looked at may end at any time.
var looker = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// health is the status of /health.
func (p *Process) health(ctx context.Context) (status int, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/health", nil)
	if err != nil {
		return 0, err
	}
	reply, err := looker.Do(q)
	if err != nil {
		return 0, err
	}
	return reply.StatusCode, reply.Body.Close()
}

// Close ends the server and everything that it started, and waits for it.
func (p *Process) Close() error {
	p.once.Do(func() {
		_ = p.group.Signal(syscall.SIGTERM) // it may be gone already
		select {
		case <-p.ended:
		case <-time.After(20 * time.Second):
			p.Kill()
		}
	})
	return nil
}

// Kill ends the server at once, as a crash would.
func (p *Process) Kill() {
	_ = p.group.Signal(syscall.SIGKILL) // it may be gone already
	<-p.ended
}

// tail is the end of a log in one line, without the lines of single requests.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(bytes.Split(bytes.TrimSpace(data), []byte("\n")), func(l []byte) bool { return bytes.Contains(l, []byte(` HTTP/1.1" `)) })
	var last []string
	for _, l := range lines[max(0, len(lines)-5):] {
		last = append(last, short(string(l)))
	}
	return strings.Join(last, " | ")
}
