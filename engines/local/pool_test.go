package local

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func text(ids ...int32) trajectory.Prefix { return trajectory.Prefix{IDs: ids} }

// The keys of text are what they were before there were media: the ids, four bytes each.
func TestPoolKeys(t *testing.T) {
	p := newPool(4, 2)
	require.Equal(t, key{7, "\x03\x00\x00\x00\x04\x01\x00\x00"}, p.key(7, text(1, 2, 3, 260, 5), 2))
	one := trajectory.Prefix{IDs: []int32{1, 9, 9, 9, 5, 6}, Media: []trajectory.Medium{{At: 1, Tokens: 3, Kind: "image", SHA256: trajectory.Digest{1}}}}
	other := one
	other.Media = []trajectory.Medium{{At: 1, Tokens: 3, Kind: "image", SHA256: trajectory.Digest{2}}}
	require.NotEqual(t, p.key(0, one, 0), p.key(0, other, 0), "its beginning")
	require.NotEqual(t, p.key(0, one, 2), p.key(0, other, 2), "its end")
	require.Equal(t, p.key(0, one, 4), p.key(0, other, 4), "behind it the parent tells them apart")
	require.NotEqual(t, p.key(0, one, 0), p.key(0, text(one.IDs...), 0))
	require.NotEqual(t, p.key(0, one, 1), p.key(0, one, 2), "another part of the same image")
}

func TestPoolFindsByContent(t *testing.T) {
	p := newPool(4, 2)
	a, _ := p.take()
	b, _ := p.take()
	sa, ok := p.list(a, 0, text(1, 2), 0)
	require.True(t, ok)
	sb, ok := p.list(b, sa, text(3, 4), 0)
	require.True(t, ok)
	_, _, found := p.find(0, text(3, 4), 0)
	require.False(t, found, "the same tokens elsewhere are other content")
	id, serial, found := p.find(sa, text(3, 4), 0)
	require.True(t, found)
	require.Equal(t, b, id)
	require.Equal(t, sb, serial)

	c, _ := p.take() // computes the same as a
	sc, listed := p.list(c, 0, text(1, 2), 0)
	require.False(t, listed)
	require.Equal(t, sa, sc, "what follows it is found after either")
	p.release([]int32{a, b})
	p.release([]int32{c})
	require.Equal(t, 4, p.idle)

	d, _ := p.take() // c first: it holds nothing that could be found
	require.Equal(t, c, d)
	e, _ := p.take() // then what was never used
	f, _ := p.take() // then the last block of the released sequence
	require.NotEqual(t, b, e)
	require.Equal(t, b, f)
	_, _, found = p.find(sa, text(3, 4), 0)
	require.False(t, found)
	_, _, found = p.find(0, text(1, 2), 0)
	require.True(t, found)
	p.share(a)
	require.Zero(t, p.idle)
	_, ok = p.take()
	require.False(t, ok)
	p.forget()
	_, _, found = p.find(0, text(1, 2), 0)
	require.False(t, found)
}

// References, idle count and ring agree after any sequence of operations.
func TestPoolInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := newPool(13, 2)
	var held [][]int32
	for range 20000 {
		switch r.IntN(4) {
		case 0, 1:
			var ids []int32
			var parent uint64
			for range r.IntN(4) {
				tokens := []int32{r.Int32N(3), r.Int32N(2)}
				id, serial, ok := p.find(parent, text(tokens...), 0)
				if ok {
					p.share(id)
				} else if id, ok = p.take(); !ok {
					break
				} else if serial, ok = p.list(id, parent, text(tokens...), 0); !ok {
					t.Fatal("not found, but held by another")
				}
				ids, parent = append(ids, id), serial
			}
			held = append(held, ids)
		case 2:
			if len(held) > 0 {
				i := r.IntN(len(held))
				p.release(held[i])
				held = slices.Delete(held, i, i+1)
			}
		case 3:
			if r.IntN(50) == 0 {
				p.forget()
			}
		}
		refs := make([]int, p.total())
		for _, ids := range held {
			for _, id := range ids {
				refs[id]++
			}
		}
		idle := 0
		for id := p.blocks[p.total()].next; int(id) != p.total(); id = p.blocks[id].next {
			require.Zero(t, refs[id])
			idle++
		}
		require.Equal(t, p.idle, idle)
		for id, n := range refs {
			require.Equal(t, n, p.blocks[id].refs)
			if n == 0 {
				idle--
			}
		}
		require.Zero(t, idle)
		for k, id := range p.table {
			require.Equal(t, k, p.blocks[id].key)
		}
	}
}
