//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// probe tries to get out and names each way on which it did; its last line says who it is and what holds it. $1 is a file of the host,
// $2 a file to be written in a folder of the host, $3 a process of the host, $4 a port on which the host listens.
const probe = `
cat "$1" >/dev/null 2>&1 && echo "reads files of the host"
(echo x >"$2") 2>/dev/null && echo "writes files of the host"
(echo x >/usr/agentfly-probe) 2>/dev/null && echo "writes /usr"
(echo x >/etc/agentfly-probe) 2>/dev/null && echo "writes /etc"
kill -0 "$3" 2>/dev/null && echo "signals processes of the host"
if [ -n "$BASH_VERSION" ]; then (exec 3<>"/dev/tcp/127.0.0.1/$4") 2>/dev/null && echo "connects to the host"; fi
echo x >mine && [ "$(cat mine)" = x ] || echo "cannot write its own folder"
while read -r name value; do
  case $name in CapEff:) rights=$value ;; NoNewPrivs:) none=$value ;; Seccomp:) filter=$value ;; esac
done </proc/self/status
echo "$rights $none $filter"
`

const held = "0000000000000000 1 2"

// prove runs the probe.
func (s *Sandbox) prove(ctx context.Context) error {
	folder, err := TempFolder("probe")
	if err != nil {
		return err
	}
	defer folder.Close()
	dir := folder.Path()
	if err := os.Chmod(dir, 0o777); err != nil { // only the sandbox stands before it
		return err
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(secret, 0o644); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	shell := "/bin/bash"
	if _, err := os.Stat(shell); err != nil {
		shell = "/bin/sh"
	}
	written := filepath.Join(dir, "written")
	r, err := s.Run(ctx, Program{
		Args:   []string{shell, "-c", probe, "probe", secret, written, strconv.Itoa(os.Getpid()), port},
		Limits: Limits{Wall: startTimeout},
	})
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(r.Stdout)), "\n")
	last := lines[len(lines)-1]
	switch {
	case r.TimedOut:
		return fmt.Errorf("a program that should take milliseconds took longer than %s", startTimeout.Round(time.Second))
	case r.Exit != 0 || r.Signal != "":
		return fmt.Errorf("a program does not run inside: %s (status %d %s)", lastLine(r.Stderr), r.Exit, r.Signal)
	case len(lines) > 1:
		return fmt.Errorf("it does not hold: a program inside %s", strings.Join(lines[:len(lines)-1], ", "))
	case last != held:
		return fmt.Errorf("it does not hold: capabilities, no-new-privileges and seccomp are %q, not %q", last, held)
	}
	if _, err := os.Stat(written); err == nil {
		return errors.New("it does not hold: a program inside wrote a file of the host")
	}
	return nil
}
