//go:build !unix

package gpython

import "runtime/debug"

// limit is what the collector tries; this system has no other.
func limit(memory int64) error {
	if memory > 0 {
		debug.SetMemoryLimit(memory)
	}
	return nil
}
