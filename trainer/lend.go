//go:build torch

package trainer

import (
	"context"
	"errors"
	"fmt"
)

// Orders of rank 0, see order.Kind.
const (
	lend    = "lend memory"
	reclaim = "reclaim memory"
)

// LendMemory gives the memory of the devices, on all ranks, to somebody else who shares them, such as a server that samples: moments
// and gradients go to host memory, what can be computed again is dropped, and the device's allocator is emptied. The weights stay.
// Until ReclaimMemory a Step fails; Save works.
func (t *Trainer) LendMemory(ctx context.Context) error { return t.order(ctx, lend) }

// ReclaimMemory brings back what LendMemory moved, to the same bits. It does nothing where nothing is lent.
func (t *Trainer) ReclaimMemory(ctx context.Context) error { return t.order(ctx, reclaim) }

// order has all ranks do their part, or none where ctx has ended: what the others have begun this one does too.
func (t *Trainer) order(ctx context.Context, kind string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("trainer: %s: %w", kind, err)
	}
	if t.ranks.leads() {
		if err := t.ranks.tell(order{Kind: kind}); err != nil {
			return fmt.Errorf("trainer: %s: %w", kind, err)
		}
	}
	if err := t.move(ctx, kind); err != nil {
		t.ranks.fail(err)
		return err
	}
	return nil
}

// move does this rank's part of an order, and returns when every rank has done its own.
func (t *Trainer) move(ctx context.Context, kind string) error {
	err := t.worker.Do(context.WithoutCancel(ctx), func() error {
		if kind == reclaim {
			return t.optimizer.Restore()
		}
		err := t.optimizer.Release()
		if frozen, ok := t.config.Reference.(FrozenModel); ok {
			err = errors.Join(err, frozen.Model.Release())
		}
		return err
	})
	if err == nil && !t.ranks.alone() {
		err = t.ranks.group.Barrier()
	}
	if err != nil {
		return fmt.Errorf("trainer: %s: %w", kind, err)
	}
	return nil
}
