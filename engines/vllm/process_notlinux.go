//go:build unix && !linux

package vllm

import "syscall"

func endWithParent(*syscall.SysProcAttr) {}
