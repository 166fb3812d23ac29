package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// decoder reads a row. After its first error it gives zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = errors.New(what)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("it ends within a number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("it ends within a number")
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

// count reads the number of things of which each takes at least a byte.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("a length is beyond its end")
		return 0
	}
	return int(n)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail("it ends too early")
		return make([]byte, n)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) text() string   { return string(d.take(d.count())) }
func (d *decoder) float() float64 { return math.Float64frombits(d.fixed()) }
func (d *decoder) fixed() uint64  { return binary.LittleEndian.Uint64(d.take(8)) }
func (d *decoder) flags() byte    { return d.take(1)[0] }

// rowID checks a row and returns the trajectory that it belongs to, the number of turns before it, and the rest.
func rowID(body []byte) (id string, first int, rest *decoder, err error) {
	if len(body) < 5 {
		return "", 0, nil, fmt.Errorf("it has %d bytes", len(body))
	}
	end := len(body) - 4
	if crc32.Checksum(body[:end], castagnoli) != binary.LittleEndian.Uint32(body[end:]) {
		return "", 0, nil, errors.New("its checksum is wrong")
	}
	if body[0] != rowFormat {
		return "", 0, nil, fmt.Errorf("its format is %d, this program knows %d", body[0], rowFormat)
	}
	d := &decoder{b: body[1:end]}
	id, first = d.text(), int(d.uint())
	return id, first, d, d.err
}

// grow adds a row to the trajectory that it belongs to.
func grow(t *trajectory.Trajectory, body []byte) error {
	id, first, d, err := rowID(body)
	if err != nil {
		return err
	}
	if id != t.ID {
		return fmt.Errorf("it belongs to trajectory %q", id)
	}
	if first != len(t.Turns) {
		return fmt.Errorf("it begins at turn %d, and %d are known", first, len(t.Turns))
	}
	for range d.count() {
		k, start := d.int(), d.uint()
		s, err := d.tokens()
		if err != nil {
			return err
		}
		if k >= 0 {
			if err := extend(t, k, start, s); err != nil {
				return err
			}
		}
		if d.flags() == 1 {
			t.Turns = append(t.Turns, d.turn())
		}
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("more follows its end")
	}
	return d.err
}

// extend appends the tokens of s to sample k, which has start.
func extend(t *trajectory.Trajectory, k int, start uint64, s *trajectory.Sample) error {
	if k > len(t.Samples) {
		return fmt.Errorf("it continues sample %d of %d", k, len(t.Samples))
	}
	if k == len(t.Samples) {
		t.Samples = append(t.Samples, &trajectory.Sample{})
	}
	to := t.Samples[k]
	if start != uint64(to.Len()) {
		return fmt.Errorf("it continues sample %d at token %d, and %d are known", k, start, to.Len())
	}
	if start == 0 {
		*to = *s
		return nil
	}
	to.TokenIDs, to.ResponseMask = append(to.TokenIDs, s.TokenIDs...), append(to.ResponseMask, s.ResponseMask...)
	to.SamplingLogprobs, to.PolicyVersion = append(to.SamplingLogprobs, s.SamplingLogprobs...), append(to.PolicyVersion, s.PolicyVersion...)
	return nil
}

func (d *decoder) tokens() (*trajectory.Sample, error) {
	n := d.count()
	s := &trajectory.Sample{
		TokenIDs: make([]int32, n), ResponseMask: make([]bool, n), SamplingLogprobs: make([]float32, n), PolicyVersion: make([]int32, n),
	}
	for i := range s.TokenIDs {
		s.TokenIDs[i] = int32(uint32(d.uint()))
	}
	for at, on := 0, false; at < n; on = !on {
		run := d.uint()
		if d.err != nil || run > uint64(n-at) || run == 0 && at > 0 {
			d.fail("the runs of the mask do not fit")
			return s, d.err
		}
		for range run {
			s.ResponseMask[at] = on
			at++
		}
	}
	left := 0
	for i, on := range s.ResponseMask {
		s.PolicyVersion[i] = -1
		if on {
			s.SamplingLogprobs[i] = math.Float32frombits(binary.LittleEndian.Uint32(d.take(4)))
			left++
		}
	}
	for at := 0; left > 0; {
		run, version := d.uint(), d.int()
		if d.err != nil || run == 0 || run > uint64(left) {
			d.fail("the runs of the versions do not fit")
			return s, d.err
		}
		left -= int(run)
		for ; run > 0; at++ {
			if s.ResponseMask[at] {
				s.PolicyVersion[at] = int32(version)
				run--
			}
		}
	}
	return s, d.err
}

func (d *decoder) turn() trajectory.Turn {
	var t trajectory.Turn
	t.Sample, t.CompletionStart, t.CompletionEnd, t.ObservationEnd = d.int(), d.int(), d.int(), d.int()
	t.CachedTokens, t.ParseErrors = d.int(), d.int()
	results := d.int()
	t.Completion, t.FinishReason, t.Seed = d.text(), trajectory.FinishReason(d.text()), d.fixed()
	t.EngineSeconds, t.ToolSeconds = d.float(), d.float()
	if results < 0 || results > len(d.b) {
		d.fail("the number of its results is wrong")
		return t
	}
	for range results {
		var r trajectory.ToolResult
		r.Call.ID, r.Call.Name = d.text(), d.text()
		arguments := d.text()
		r.Observation = d.text()
		flags := d.flags()
		if r.Failed = flags&1 != 0; flags&2 == 0 {
			r.Call.Arguments = []byte(arguments)
		}
		r.Broken, r.Terminal, r.Cached = flags&4 != 0, flags&8 != 0, flags&16 != 0
		r.Duration = time.Duration(d.int())
		if flags&32 != 0 {
			r.Cause, r.Retries = trajectory.Cause(d.text()), d.int()
			if info := d.text(); info != "" {
				r.Info = []byte(info)
			}
		}
		t.Results = append(t.Results, r)
	}
	t.FinalAnswer = d.text()
	flags := d.flags()
	t.AnsweredThisTurn = flags&1 != 0
	if flags&2 != 0 {
		reward := d.float()
		t.Reward = &reward
	}
	t.Anchor, t.Shared = d.text(), d.text()
	return t
}
