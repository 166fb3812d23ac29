//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// landlockABI is the first version of landlock that keeps signals and abstract sockets within the sandbox (Linux 6.12).
const landlockABI = 6

// openLandlock opens the fallback. What it does not do, beside what docs/sandbox.md says: a program shares the machine's process table,
// whose other processes it cannot signal, look into or list, and its limit of processes is counted over the user; there is no bound on
// the disk but the watch.
func openLandlock(ctx context.Context) (*Sandbox, error) {
	version, err := llsys.LandlockGetABIVersion()
	switch {
	case err != nil:
		return nil, fmt.Errorf("the kernel has no landlock (%w); start it with lsm=landlock", err)
	case version < landlockABI:
		return nil, fmt.Errorf("the kernel's landlock has version %d, and 6 (Linux 6.12) is the first that confines signals; use a newer kernel", version)
	}
	program, err := filter(confinement{shared: true, owner: os.Geteuid() != 0}) // no sockets: landlock knows TCP alone
	if err != nil {
		return nil, err
	}
	s := &Sandbox{kind: Landlock, command: func(p Program, l Limits) (*launch, error) { return helped(p, l, program) }}
	if err := s.prove(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func openNone() (*Sandbox, error) {
	return &Sandbox{kind: None, command: func(p Program, l Limits) (*launch, error) { return helped(p, l, nil) }}, nil
}

// helped is a launch by way of the helper; without a filter nothing but limits holds the program.
func helped(p Program, l Limits, filter []byte) (out *launch, err error) {
	out = &launch{}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	if len(p.Mounts) > 0 {
		return out, fmt.Errorf("%s cannot be mounted: only the sandbox bubblewrap shows folders under other paths; install bubblewrap", p.Mounts[0].Inside)
	}
	if p.Serve != nil {
		return out, errors.New("nothing can be served to the program: only the sandbox bubblewrap has a network of its own; install bubblewrap")
	}
	home := p.Workspace
	confined := filter != nil
	folder, err := TempFolder("sandbox")
	if err != nil {
		return out, err
	}
	own := folder.Path()
	out.folder = folder
	temp := filepath.Join(own, "tmp")
	writable := []string{temp}
	if home == "" {
		home = filepath.Join(own, "workspace")
	}
	for _, dir := range []string{temp, home} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return out, err
		}
	}
	o := orders{
		Args: p.Args, Env: append(environment(p, home), "TMPDIR="+temp), Folder: home, Limits: l, Filter: filter,
		Writable: append(writable, home), ReadOnly: p.ReadOnly, Own: own,
	}
	if confined && os.Geteuid() == 0 {
		o.User = nobody
		for _, dir := range []string{temp, home} {
			if err := os.Chown(dir, nobody, nobody); err != nil {
				return out, err
			}
		}
		if err := os.Chmod(own, 0o711); err != nil {
			return out, err
		}
	}
	config, err := json.Marshal(o)
	if err != nil {
		return out, err
	}
	var status, control *os.File
	if out.status, status, err = os.Pipe(); err != nil {
		return out, err
	}
	out.theirs = append(out.theirs, status)
	if control, out.control, err = os.Pipe(); err != nil {
		return out, err
	}
	out.theirs = append(out.theirs, control)
	// A file, because a driver may be longer than a pipe.
	file, err := os.OpenFile(filepath.Join(own, "orders"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return out, err
	}
	out.theirs = append(out.theirs, file)
	if _, err := file.Write(config); err != nil {
		return out, err
	}
	if _, err := file.Seek(0, 0); err != nil {
		return out, err
	}
	out.cmd = &exec.Cmd{Path: "/proc/self/exe", Args: []string{helperName, "supervise"}, Env: helperEnvironment(), Dir: "/"}
	out.cmd.ExtraFiles = []*os.File{status, control, file, folder.lock}
	return out, nil
}
