//go:build torch

package cgo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The matrices of the operation "paged".
const (
	pagedQKV = iota
	pagedKV
	pagedOut
	pagedRow
	pagedSequence
	pagedCount
	pagedTable
)

// span is how many keys of a row a block of the kernel takes: kSpan of src/cuda/paged.h.
const span = 128

// pagedShape is what attention over a cache in blocks is asked of: one row for each count of keys.
type pagedShape struct {
	headDim, groups, kvHeads, blockSize int
	counts                              []int
}

// pagedShapes have heads of few and many threads, of whole vectors and not; query heads in one chunk and in two; counts around a
// block and around a span.
var pagedShapes = []pagedShape{
	{8, 1, 2, 8, []int{1, 7, 8, span - 1, span, span + 1, 3*span - 5}},
	{64, 4, 1, 16, []int{1, 8, 7, 17, span + 1}},
	{128, 7, 1, 16, []int{3, 40}},
	{20, 3, 2, 8, []int{7, span, span - 1, span + 1}},
	{6, 7, 2, 16, []int{1, 4 * span, 8}},
	{256, 1, 1, 8, []int{1, 23, span + 8}},
	{64, 3, 2, 16, []int{2*span + 6}},
}

// pagedOperation has two rows to a sequence, of shuffled blocks. The cache's first block is of no sequence and NaN, and entries of
// the table that no row sees lead out of the cache. Of the rows of q and out every other one is none of the step's.
func pagedOperation(r *rand.Rand, s pagedShape) operation {
	n, sequences := len(s.counts), (len(s.counts)+1)/2
	ceil := func(keys int) int { return (keys + s.blockSize - 1) / s.blockSize }
	widest := ceil(slices.Max(s.counts)) + 1
	table := matrix{sequences, widest, slices.Repeat([]float32{-1 << 20}, sequences*widest)}
	var used []*float32
	for i := range sequences {
		most := slices.Max(s.counts[2*i : min(2*i+2, n)])
		for b := range ceil(most) {
			used = append(used, &table.data[i*widest+b])
		}
	}
	for i, b := range r.Perm(len(used)) {
		*used[i] = float32(1 + b)
	}
	row, sequence, count := matrix{n, 1, nil}, matrix{n, 1, nil}, matrix{n, 1, nil}
	for i, place := range r.Perm(n) {
		row.data = append(row.data, float32(2*place+1))
		sequence.data = append(sequence.data, float32(i/2))
		count.data = append(count.data, float32(s.counts[i]))
	}
	width, heads := s.kvHeads*s.headDim, s.kvHeads*s.groups
	kv := randomMatrix(r, (1+len(used))*s.blockSize, 2*width)
	copy(kv.data, slices.Repeat([]float32{float32(math.NaN())}, s.blockSize*2*width))
	o := operation{"paged", heads, float64(s.blockSize), []string{"af_attend_paged"}, []matrix{
		randomMatrix(r, 2*n+1, heads*s.headDim+2*width), kv, randomMatrix(r, 2*n+1, heads*s.headDim),
		row, sequence, count, table,
	}, []int{pagedRow, pagedSequence, pagedCount, pagedTable}}
	if slices.Max(s.counts) > span {
		o.kernels = append(o.kernels, "af_join_spans")
	}
	return o
}

// keyOf is what the cache holds of key p of the operation's row i: its heads, and then those of its value.
func keyOf(o operation, i, p int) []float32 {
	table, size, kv := o.matrices[pagedTable], int(o.number), o.matrices[pagedKV]
	block := int(table.data[int(o.matrices[pagedSequence].data[i])*table.columns+p/size])
	return rowOf(kv, block*size+p%size)
}

func rowOf(m matrix, i int) []float32 { return m.data[i*m.columns : (i+1)*m.columns] }

// changed is the operation with matrices of its own, which change may write to.
func (o operation) changed(change func(o operation)) operation {
	o.matrices = slices.Clone(o.matrices)
	for i, m := range o.matrices {
		o.matrices[i].data = slices.Clone(m.data)
	}
	change(o)
	return o
}

// kernels is where kernels run: the first device, or -1, the CPU, where they run thread by thread until the test ends.
func kernels(t *testing.T) int {
	t.Helper()
	if testDevice() != "cpu" {
		return 0
	}
	scripted(t, "libcuda.so.1")
	return -1
}

// A row has the same bits alone and among others, whose more keys have it joined from spans although it has one.
func TestPagedRowsAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for _, s := range []pagedShape{{64, 3, 1, 16, []int{1, span, span + 88, 37}}, {10, 5, 2, 8, []int{9, 2*span + 76, span, span + 1, 3}}} {
		o := pagedOperation(r, s)
		for _, dtype := range []DType{F32, BF16} {
			t.Run(fmt.Sprint(s.headDim, dtype), func(t *testing.T) {
				on := kernels(t)
				together := o.runOn(t, on, dtype, 0)[pagedOut]
				for i := range s.counts {
					alone := o.changed(func(o operation) {
						for _, k := range []int{pagedRow, pagedSequence, pagedCount} {
							o.matrices[k] = matrix{1, 1, o.matrices[k].data[i : i+1]}
						}
					})
					row := int(o.matrices[pagedRow].data[i])
					require.Equal(t, bits(rowOf(together, row)), bits(rowOf(alone.runOn(t, on, dtype, 0)[pagedOut], row)), "row of %d keys", s.counts[i])
				}
			})
		}
	}
}

// What a row does not see does not touch it, NaN or not; a NaN that it sees gives NaN wherever it goes: a key's and a query's in all
// of a head, a value's in its element.
func TestPagedNaN(t *testing.T) {
	nan := float32(math.NaN())
	s := pagedShape{20, 5, 2, 8, []int{11, 530, 4}}
	const seer, K, E, G = 1, 2, 20, 5 // the row of 530 keys shares its sequence with that of 11
	o := pagedOperation(rand.New(rand.NewPCG(9, 9)), s)
	for _, by := range []string{"expression", "kernel"} {
		for _, dtype := range []DType{F32, BF16} {
			t.Run(fmt.Sprint(by, dtype), func(t *testing.T) {
				on := -1
				if by == "kernel" {
					on = kernels(t)
				}
				clean := o.runOn(t, on, dtype, 0)[pagedOut]
				row := int(o.matrices[pagedRow].data[seer])
				// check has change made, and NaN in the seer's row where it should be, of everything else the bits of before.
				check := func(change func(o operation), isNaN func(head, e int) bool) {
					t.Helper()
					got := o.changed(change).runOn(t, on, dtype, 0)[pagedOut]
					for i, x := range got.data {
						if i/got.columns == row && isNaN(i%got.columns/E, i%E) {
							require.True(t, math.IsNaN(float64(x)), "number %d of row %d is %v", i%got.columns, row, x)
						} else {
							require.Equal(t, math.Float32bits(clean.data[i]), math.Float32bits(x), "number %d of row %d", i%got.columns, i/got.columns)
						}
					}
				}
				check(func(o operation) {
					for _, p := range [][2]int{{0, 530}, {1, 530}, {1, 535}, {2, 4}, {2, 7}} { // behind the last key, in its block
						for c := range keyOf(o, p[0], p[1]) {
							keyOf(o, p[0], p[1])[c] = nan
						}
					}
				}, func(int, int) bool { return false })
				for _, p := range []int{11, 100, span - 1, span, 529} {
					check(func(o operation) { keyOf(o, seer, p)[E+3] = nan }, func(head, _ int) bool { return head/G == 1 })
					check(func(o operation) { keyOf(o, seer, p)[K*E+3] = nan }, func(head, e int) bool { return head/G == 0 && e == 3 })
				}
				check(func(o operation) { rowOf(o.matrices[pagedQKV], row)[6*E+1] = nan }, func(head, _ int) bool { return head == 6 })
			})
		}
	}
}

// Scores far beyond the range of exponentials, all of one sign too.
func TestPagedLargeScores(t *testing.T) {
	for name, factor := range map[string]float32{"both signs": 100, "below": -100, "above": 100} {
		o := pagedOperation(rand.New(rand.NewPCG(10, 9)), pagedShape{8, 3, 1, 8, []int{600, 70}}).changed(func(o operation) {
			for i, x := range o.matrices[pagedQKV].data {
				o.matrices[pagedQKV].data[i] = x * factor
				if name != "both signs" {
					o.matrices[pagedQKV].data[i] = float32(math.Abs(float64(x))) * factor
				}
			}
			for i, x := range o.matrices[pagedKV].data {
				if i%16 < 8 && name != "both signs" {
					o.matrices[pagedKV].data[i] = float32(math.Abs(float64(x)))
				}
			}
		})
		want := o.run(t, F32, 0)[pagedOut]
		t.Run(name, func(t *testing.T) {
			agree(t, o.runOn(t, kernels(t), F32, 0)[pagedOut].data, want.data, false, 2e-4) // scores of some 1,000 are exact to a ten-thousandth
		})
	}
}
