// Package sysmon works around a fault of Go 1.26's runtime that can stand a whole process still for a minute.
//
// Every garbage collection stops the world. A goroutine that begins a blocking system call, or a call into C, at that very moment can be
// missed: it looks whether the world is being stopped before it says that it is in a call (reentersyscall), and who stops the world looks
// once (stopTheWorldWithSema). The world then waits for the end of the call. The runtime's monitor, sysmon, could take the processor from
// it, but sleeps while the world is being stopped: until the next timer, at most a minute. A server whose reader waits for standard input is
// silent for that minute; so is a program that waits for a training step in C. Go 1.25 marks the call first and is free of it.
//
// It does not mend other programs: an MCP server that is written in Go may have the fault itself.
package sysmon

import "time"

// KeepAwake bounds that standstill to about a tenth of a second, for the rest of the process's life: the monitor sleeps no longer than to the
// next timer. It costs 20 wakeups a second.
func KeepAwake() {
	go func() {
		for range time.Tick(50 * time.Millisecond) {
		}
	}()
}
