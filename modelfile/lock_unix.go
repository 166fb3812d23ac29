//go:build unix

package modelfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockRepo keeps two pulls of one repository apart; it waits until the other has finished or ctx ends. The lock ends
// with the process, whatever happens to it.
func lockRepo(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "agentfly.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("modelfile: locking %s: %w", f.Name(), err)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			f.Close()
			return nil, fmt.Errorf("modelfile: waiting for another pull (%s): %w", f.Name(), err)
		}
	}
}
