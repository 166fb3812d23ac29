//go:build unix

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
)

// every is how often a lock that another holds is tried again.
const every = 50 * time.Millisecond

// Wait takes the lock of a file, which it makes, when nobody else has it, in this process or another. other names who may have it,
// for the error when ctx ends before.
func Wait(ctx context.Context, path, other string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if err := retry.Sleep(ctx, every); err != nil {
			f.Close()
			return nil, fmt.Errorf("waiting for %s (%s): %w", other, path, err)
		}
	}
}
