//go:build unix && !linux

package mcp

import "syscall"

func endWithParent(*syscall.SysProcAttr) {}
