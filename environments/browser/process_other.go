//go:build !unix

package browser

import "os/exec"

func alone(*exec.Cmd) {}

func endAll(c *exec.Cmd) { _ = c.Process.Kill() } // of a process that is gone, nobody

func alive(int) bool { return true }
