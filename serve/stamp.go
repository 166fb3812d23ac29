package serve

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"
)

// stamp names and dates replies.
type stamp struct {
	now    func() time.Time
	prefix string // so that the names of two servers differ
	serial atomic.Uint64
}

func newStamp(now func() time.Time) *stamp {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	return &stamp{now: now, prefix: hex.EncodeToString(id[:])}
}

// id names a reply.
func (s *stamp) id(kind string) string {
	return fmt.Sprintf("%s-%s%08x", kind, s.prefix, s.serial.Add(1))
}
