//go:build unix && !linux

package python

import "syscall"

func endWithParent(*syscall.SysProcAttr) {}

func waitDead(int) {}
