//go:build !unix

package mcp

import (
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

func killGroup(pid int, _ syscall.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may be gone already
	}
}
