package memory

import "github.com/agentfly/agentfly/modelfile"

// shape counts what the forward and the backward of one micro-batch hold, tensor by tensor as cgo/src/forward.cc makes them. Every token may be
// a row of the head, so the counts are bounds. Sizes are numbers of elements; the letters are those of cgo/src/internal.h.
type shape struct {
	T, D, F, H, K, E, V, L int64 // heads and columns of the MLP that this rank computes
	O                      int64 // tokens whose residual stream it computes: T, or its share where ranks share the layers
	ranks                  int64 // that share the layers
	keys                   int64 // tokens whose keys attention reads: T, or those of all ranks that compute the micro-batch together
	longest, threads       int64
	bytes                  int64 // of an activation
	normed, cuda           bool  // q and k are normed
	largest                int64 // elements of the largest matrix of a layer, or the head
}

func newShape(s Setting, c *modelfile.Config, half bool) shape {
	tokens, ranks := dealt(int64(s.Tokens), int64(s.Context)), int64(max(s.Tensor, 1))
	a := shape{
		T: tokens, O: dealt(tokens, ranks), ranks: ranks, keys: int64(s.Tokens), D: int64(c.HiddenSize),
		F: int64(c.IntermediateSize) / ranks, H: int64(c.NumHeads) / ranks, K: max(int64(c.NumKVHeads)/ranks, 1), E: int64(c.HeadDim),
		V: int64(c.VocabSize), L: int64(c.NumLayers), longest: int64(min(s.Longest, s.Tokens)), threads: int64(max(s.Threads, 1)), bytes: float,
		normed: c.QKNorm, cuda: s.CUDA,
	}
	if half {
		a.bytes = 2
	}
	a.largest = max(2*a.F*a.D, a.V*a.D)
	return a
}

// dealt is the most that a rank has of tokens that so many compute together.
func dealt(tokens, ranks int64) int64 {
	if ranks <= 1 {
		return tokens
	}
	return 2 * ((tokens + 2*ranks - 1) / (2 * ranks)) // two runs of those that are dealt
}

// exchanged is what ranks that share a layer hold of all tokens while they sum terms: the terms, as they go and as they come.
func (a shape) exchanged() int64 {
	if a.ranks == 1 {
		return 0
	}
	return 3 * (a.T + 16*a.ranks) * a.D * float
}

// gathered is what attention holds of the keys of a micro-batch that several ranks compute.
func (a shape) gathered(backward bool) int64 {
	if a.keys <= a.T {
		return 0
	}
	n := 2 * a.keys * 2 * a.K * a.E // as they come, and in their order
	if backward {
		return n*a.bytes + n*float
	}
	return n * a.bytes
}

// qkv is the width of queries, keys and values.
func (a shape) qkv() int64 { return (a.H + 2*a.K) * a.E }

// layer is what a layer's backward needs of its forward.
func (a shape) layer() int64 {
	n := (a.qkv()+a.H*a.E+2*a.F)*a.bytes + a.H*float
	if a.normed {
		n += (a.H+a.K)*a.E*a.bytes + (a.H+a.K)*float
	}
	return a.T*n + a.O*(2*a.D*a.bytes+2*float)
}

// input is a layer's input or output.
func (a shape) input() int64 { return a.O * a.D * a.bytes }

// batch is the tokens and the rotations of their positions.
func (a shape) batch() int64 { return a.T * (a.E*float + 3*8) }

// rows is the last layer's output at the rows, before and behind the last norm.
func (a shape) rows() int64 { return 2 * a.input() }

// tile is the piece of the logits that exists at once, with its rounded copy and the widened operands.
func (a shape) tile() int64 {
	if a.cuda { // chunks of rows: logits, probabilities and what lies between; the gradient of the head's matrix
		n := 6 * chunkRows * a.V * float
		if a.bytes != float {
			n += a.V*a.D*float + chunkRows*a.V*2
		}
		rows := min(max(kernelNumbers/a.V/leastKernelRows*leastKernelRows, leastKernelRows), kernelRows) // of own kernels: the logits alone, which become their gradient
		return max(n, min(a.O, rows)*a.V*float)
	}
	rows, columns := min(a.O, tileRows), int64(tileColumns)
	for 2*columns*rows <= tileNumbers {
		columns *= 2
	}
	n := rows * min(a.V, columns) * float
	if a.bytes != float {
		n += n / 2
	}
	return n
}

// products is what the operations of a layer make on their way.
func (a shape) products() int64 {
	if !a.cuda {
		if a.bytes == float {
			return 0
		}
		// The engine's product of a projection: its rows widened and narrowed again, its sums, the matrix in panels.
		most := int64(0)
		for _, p := range [][2]int64{{a.D, a.qkv()}, {a.H * a.E, a.D}, {a.D, 2 * a.F}, {a.F, a.D}} {
			in, out := p[0], p[1]
			most = max(most, a.T*(in*(float+a.bytes)+out*float)+(in+1)*inPanels(out)*a.bytes)
		}
		return most
	}
	n := max(6*a.T*a.F, 4*a.O*a.D) * float // SwiGLU's and the norms' float32
	if a.bytes != float {
		n = max(n, 2*a.F*a.D*float) // a gradient before it is added
	}
	return n
}

// flash tells whether attention is one call of flash attention: see af_model::choose_path.
func (a shape) flash() bool { return a.cuda && a.bytes != float && a.E%8 == 0 && a.E <= 256 }

// attended is what attention makes on its way.
func (a shape) attended(backward bool) int64 {
	if a.flash() {
		// The output, and the keys and values by an index, a shared one for each segment behind it: four times, about. Many short answers
		// behind a long prompt take more.
		n := a.T*a.H*a.E*a.bytes + 4*a.keys*2*a.K*a.E*a.bytes
		if backward { // gradients of q, and of k and v of every head; sums of q's in float32, one for each of the splits that keep their order
			const processors = 132 // of an H100 and an H200
			splits := (processors + a.H - 1) / a.H
			n += (a.T+2*a.keys)*a.H*a.E*a.bytes + splits*a.T*a.H*a.E*float
		}
		return n + a.gathered(backward)
	}
	if a.cuda { // one segment at a time: scores, and what is made of them
		scores := a.H * a.longest * a.longest * float
		if backward {
			return 5*scores + a.gathered(backward)
		}
		return 3*scores + a.gathered(backward)
	}
	groups := a.H / a.K
	block := min(max(blockRows/groups, leastBlockRows), mostBlockRows) * groups // rows
	squares, rows := 2*block*a.longest, 3*block*a.E
	if a.bytes != float { // the keys or the values in panels, and where keys, values and their gradients lie
		wide := inPanels(a.E)
		rows = 3*block*wide + a.longest*(wide*a.bytes+32)/float
		if backward {
			squares, rows = 2*squares, rows+a.longest*wide
		}
	}
	scratch := a.threads * (squares + rows) * float
	if !backward {
		return a.gathered(backward) + scratch
	}
	sums := 2 * a.keys * a.E * ((15 + a.K) / a.K * a.K) // of keys and values
	if a.bytes != float {
		sums += 2 * a.keys * a.E * a.K // all of them, before they are rounded
	}
	return 2*a.gathered(backward) + scratch + sums*float
}

// inference is the most of a forward whose layers are not kept.
func (a shape) inference() int64 {
	work := (a.O*a.D + a.T*a.F) * a.bytes
	layer := a.layer() + a.input() + work + max(a.attended(false), a.products(), a.exchanged())
	return a.batch() + max(layer, a.input()+work+a.rows()+a.tile())
}

// training is the most of a forward and a backward that computes so many layers again, from the first.
func (a shape) training(checkpoint int) int64 {
	work := (a.O*a.D + a.T*a.F) * a.bytes
	n := min(int64(checkpoint), a.L)
	kept := n*a.input() + (a.L-n)*a.layer()
	held := kept // while a layer is computed: those that are made again are, when the intermediates of the others are gone
	if n > 0 {
		held = max(held, (n-1)*a.input()+a.layer())
	}
	hidden := a.O * a.D * float // a gradient at the rows
	head := kept + a.input() + work + a.rows() + a.tile()
	headBackward := kept + a.rows() + a.input() + hidden + max(a.tile(), hidden)
	back := (a.O*a.D+a.T*(4*a.F+a.H*a.E+a.qkv()))*a.bytes + a.T*a.D*a.bytes
	if a.ranks > 1 { // terms of a sum are float32
		back += a.T * a.D * (float - a.bytes)
	}
	between := max(a.attended(true), a.products(), a.exchanged())
	if a.normed {
		between = max(between, a.T*(a.H+a.K)*a.E*a.bytes)
	}
	layer := held + a.rows() + 2*hidden + a.input() + back + between
	forward := held + work + a.input() + max(a.attended(false), a.products(), a.exchanged())
	return a.batch() + max(forward, head, headBackward, layer)
}
