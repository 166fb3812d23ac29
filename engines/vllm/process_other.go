//go:build !unix

package vllm

import (
	"os/exec"
	"syscall"
)

func processGroup() *syscall.SysProcAttr { return nil }

func signalGroup(c *exec.Cmd, s syscall.Signal) { _ = c.Process.Kill() } // it may be gone already
