//go:build !linux

package procgroup

// awaitExit is for where a process can be awaited without being reaped.
func awaitExit(int) bool { return false }
