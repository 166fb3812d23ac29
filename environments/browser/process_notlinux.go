//go:build unix && !linux

package browser

import "syscall"

func orphaned(*syscall.SysProcAttr) {}
