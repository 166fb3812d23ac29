package cgo

import (
	"errors"
	"fmt"
)

// Neighbours are the ranks that compute a batch together with this one: all of them call the forward, and the backward of its outputs,
// with the same batch and options. Each gets the outputs of all rows; its gradients of parameters are terms, and those of all ranks add
// up to the batch's. A nil group: this rank alone. Where there are both, each rank of one has another group of the other kind.
type Neighbours struct {
	Context *Group // a share of the batch's tokens each (context parallelism)
	Tensor  *Group // a share of every layer's heads and of its MLP's columns each (tensor parallelism), see [ModelConfig.Shares]
}

// NewNeighbours joins the neighbours of a rank of c, context times tensor at a time (0 and 1: none): those of a tensor group follow
// each other. Close them before the group of c, whose World is a multiple of both.
func NewNeighbours(c GroupConfig, context, tensor int) (n Neighbours, err error) {
	if context > 1 {
		if n.Context, err = NewGroup(c.part("context", context, max(1, tensor))); err != nil {
			return Neighbours{}, err
		}
	}
	if tensor > 1 {
		if n.Tensor, err = NewGroup(c.part("tensor", tensor, 1)); err != nil {
			return Neighbours{}, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// part is the group of this rank among the ranks of c: n of them, stride apart.
func (c GroupConfig) part(name string, n, stride int) GroupConfig {
	place := c.Rank / stride % n
	c.First, c.Stride = c.Rank-place*stride, stride
	c.Rank, c.World, c.Serve = place, n, false // c's rank 0 serves the store already
	c.Prefix += fmt.Sprintf("%s_%d_", name, c.First)
	return c
}

// Groups are those that there are, the larger strides first.
func (n Neighbours) Groups() (groups []*Group) {
	for _, g := range []*Group{n.Context, n.Tensor} {
		if g != nil {
			groups = append(groups, g)
		}
	}
	return groups
}

// World is how many ranks compute a batch together, this one among them.
func (n Neighbours) World() int {
	world := 1
	for _, g := range n.Groups() {
		world *= g.World()
	}
	return world
}

// Rank is this rank's number among them.
func (n Neighbours) Rank() int {
	rank := 0
	for _, g := range n.Groups() {
		rank = rank*g.World() + g.Rank()
	}
	return rank
}

// Fail tells them that this one fails and why, as [Group.Fail].
func (n Neighbours) Fail(why string) {
	for _, g := range n.Groups() {
		g.Fail(why)
	}
}

// Close leaves the groups; it may be called again.
func (n Neighbours) Close() error {
	var errs []error
	for _, g := range n.Groups() {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}

// Shares are the numbers of ranks that can share the layers of a model (see [Neighbours]), ascending from 1: they divide the query heads and
// the columns of the MLP, and divide the key/value heads or are multiples of them.
func (c ModelConfig) Shares() (ranks []int) {
	for n := 1; n <= c.NumHeads; n++ {
		if c.NumHeads%n == 0 && c.IntermediateSize%n == 0 && (c.NumKVHeads%n == 0 || n%c.NumKVHeads == 0) {
			ranks = append(ranks, n)
		}
	}
	return ranks
}
