package boxed

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
)

// Split divides names into those to train on and those held out, each in an order that the seed mixes: a fifth, and at least one of two, are held out.
func Split(seed int64, names []string) (train, eval []string) {
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(mixed(seed, a), mixed(seed, b)), cmp.Compare(a, b)) })
	held := len(names) / 5
	if held == 0 && len(names) > 1 {
		held = 1
	}
	return names[held:], names[:held]
}

func mixed(seed int64, name string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", seed, name)
	x := h.Sum64() // of which the last letters hardly move the first bits
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}
