//go:build !linux

package mcp

// awaitExit is for where a process can be awaited without being reaped.
func awaitExit(int) {}

// killMarked is for where the environment of processes can be read.
func killMarked(string) {}
