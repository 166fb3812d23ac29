//go:build unix

package gpython

import (
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// deepest is the stack of a recursion before the process ends, in bytes.
const deepest = 256 << 20

// limit bounds the memory of the process. It is that of data: Go reserves more addresses than it uses.
func limit(memory int64) error {
	debug.SetMaxStack(deepest)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	if memory <= 0 {
		return nil
	}
	debug.SetMaxStack(int(min(deepest, memory/4)))
	debug.SetMemoryLimit(memory / 4 * 3) // the collector works harder before it is too late
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: uint64(memory), Max: uint64(memory)})
}
