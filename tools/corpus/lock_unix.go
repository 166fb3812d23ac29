//go:build unix

package corpus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lock keeps two builds of one folder apart, of this process or of several. It ends with the process, whatever happens to it.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("corpus: locking %s: %w", path, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("corpus: waiting for another process that builds the index (%s): %w", path, ctx.Err())
		}
	}
}
