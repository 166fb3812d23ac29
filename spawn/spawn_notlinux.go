//go:build unix && !linux

package spawn

import "syscall"

func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}
