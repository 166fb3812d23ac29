//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

var errLinux = errors.New("sandboxes need Linux")

// What sandbox.go refers to; on other systems no sandbox opens.
type (
	launch   struct{}
	starter  struct{}
	overfull struct{}
	running  struct{ stdin, stdout, stderr *os.File }
)

func openBubblewrap(context.Context) (*Sandbox, error) { return nil, errLinux }
func openLandlock(context.Context) (*Sandbox, error)   { return nil, errLinux }
func openNone() (*Sandbox, error)                      { return nil, errLinux }

func (s *Sandbox) start(context.Context, Program) (*running, error) { return nil, errLinux }

func (r *running) Stdin() io.WriteCloser    { return r.stdin }
func (r *running) Stdout() io.Reader        { return r.stdout }
func (r *running) Stderr() io.Reader        { return r.stderr }
func (r *running) Wait() error              { return errLinux }
func (r *running) Kill() error              { return nil }
func (r *running) processor() time.Duration { return 0 }

func lastLine([]byte) string { return "" }

// RemoveStale does nothing here.
func RemoveStale() {}

// Folder is a temporary folder.
type Folder struct{ path string }

// TempFolder makes a folder for temporary files of a kind; kind is part of its name.
func TempFolder(kind string) (*Folder, error) {
	path, err := os.MkdirTemp("", "agentfly-"+kind+"-")
	return &Folder{path}, err
}

// Path is absolute if the folder for temporary files is.
func (f *Folder) Path() string { return f.path }

// Close removes the folder.
func (f *Folder) Close() error { return os.RemoveAll(f.path) }

// RemoveAll removes a folder.
func RemoveAll(dir string) error { return os.RemoveAll(dir) }

// FolderBytes is not known here.
func FolderBytes(string) (int64, error) { return 0, errLinux }

// Reopen does nothing: no program runs here.
func Reopen(string) error { return nil }
