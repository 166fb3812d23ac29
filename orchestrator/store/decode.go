package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// decoder reads a row. After its first error it gives zeros.
type decoder struct {
	b      []byte
	err    error
	format byte
	posts  []trajectory.Posted // that the row adds, after pieces
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

// rowHead is what a row begins with.
type rowHead struct {
	id    string // of the trajectory that it belongs to
	ended bool   // it is its last
	first int    // turns before it
	posts int    // things that were posted before it
	at    int    // tokens of a turn that the trajectory forks behind; 0: its turns say it
}

// anew tells whether a row is the first of its trajectory, or of one that began anew.
func (h rowHead) anew() bool { return h.first == 0 && h.posts == 0 }

// readHead checks a row and returns its head and the rest.
func readHead(body []byte) (h rowHead, rest *decoder, err error) {
	if len(body) < 5 {
		return h, nil, fmt.Errorf("it has %d bytes", len(body))
	}
	end := len(body) - 4
	if crc32.Checksum(body[:end], castagnoli) != binary.LittleEndian.Uint32(body[end:]) {
		return h, nil, errors.New("its checksum is wrong")
	}
	d := &decoder{b: body[1:end], format: body[0]}
	if d.format < rowFormat1 || d.format > rowFormat8 {
		return h, nil, fmt.Errorf("its format is %d, this program knows %d to %d", d.format, rowFormat1, rowFormat8)
	}
	h.id = d.text()
	if d.format > rowFormat1 {
		h.ended = d.flags() == 1
	}
	h.first = int(d.uint())
	if d.format >= rowFormat5 {
		h.posts = d.small()
	}
	if d.format >= rowFormat8 {
		h.at = d.small()
	}
	return h, d, d.err
}

// grow adds a row to the trajectory that it belongs to.
func grow(t *trajectory.Trajectory, body []byte) error {
	head, d, err := readHead(body)
	if err != nil {
		return err
	}
	if head.id != t.ID {
		return fmt.Errorf("it belongs to trajectory %q", head.id)
	}
	if head.first != len(t.Turns) {
		return fmt.Errorf("it begins at turn %d, and %d are known", head.first, len(t.Turns))
	}
	if head.posts != len(t.Posted) {
		return fmt.Errorf("it begins at post %d, and %d are known", head.posts, len(t.Posted))
	}
	err = d.pieces(func(k int, start uint64, s *trajectory.Sample, turn *trajectory.Turn) error {
		if turn != nil {
			t.Turns = append(t.Turns, *turn)
		}
		if k < 0 {
			return nil
		}
		return extend(t, k, start, s)
	})
	t.Posted = append(t.Posted, d.posts...)
	if head.at > 0 {
		t.ForkedAt = head.at
	}
	return err
}

// turnsOf returns the turns that a row holds.
func turnsOf(body []byte) (turns []trajectory.Turn, err error) {
	_, d, err := readHead(body)
	if err != nil {
		return nil, err
	}
	err = d.pieces(func(_ int, _ uint64, _ *trajectory.Sample, turn *trajectory.Turn) error {
		if turn != nil {
			turns = append(turns, *turn)
		}
		return nil
	})
	return turns, err
}

// pieces calls f for each piece of a row: tokens of sample k, or of none where k is below 0, from start on, and the turn that they are
// of, if any.
func (d *decoder) pieces(f func(k int, start uint64, s *trajectory.Sample, turn *trajectory.Turn) error) error {
	for range d.count() {
		k, role := d.int(), d.role()
		start := d.uint()
		s, err := d.tokens()
		if err != nil {
			return err
		}
		s.Role, s.Media = role, d.media(s.Len())
		var turn *trajectory.Turn
		if d.flags() == 1 {
			t := d.turn()
			turn = &t
		}
		if d.err != nil {
			return d.err
		}
		if err := f(k, start, s, turn); err != nil {
			return err
		}
	}
	if d.format >= rowFormat5 {
		if err := json.Unmarshal([]byte(d.text()), &d.posts); err != nil && d.err == nil {
			d.fail("what was posted is no JSON")
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
	if to.Role != s.Role {
		return fmt.Errorf("it continues sample %d of role %q as role %q", k, to.Role, s.Role)
	}
	for _, m := range s.Media {
		m.At += to.Len()
		to.Media = append(to.Media, m)
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

// role reads the role of a sample or a turn.
func (d *decoder) role() trajectory.Role {
	if d.format == rowFormat1 {
		return ""
	}
	return trajectory.Role(d.text())
}

// media reads the media that begin in a piece of n tokens; their positions are counted from its start. Sample.Check tells whether they
// fit the sample.
func (d *decoder) media(n int) (media []trajectory.Medium) {
	if d.format == rowFormat1 {
		return nil
	}
	for end, left := 0, d.count(); left > 0 && d.err == nil; left-- {
		m := trajectory.Medium{At: d.small(), Tokens: d.small(), Kind: trajectory.MediaKind(d.text())}
		copy(m.SHA256[:], d.take(len(m.SHA256)))
		if m.At < end || m.At >= n || m.Tokens < 1 {
			d.fail("its media are not in order")
		}
		end = m.End()
		media = append(media, m)
	}
	return media
}

// small reads a number of tokens.
func (d *decoder) small() int {
	n := d.uint()
	if n > math.MaxInt32 {
		d.fail("a number of tokens is too great")
		return 0
	}
	return int(n)
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
		r.Terminal, r.Cached = flags&8 != 0, flags&16 != 0
		r.Duration = time.Duration(d.int())
		if flags&32 != 0 {
			r.Cause, r.Retries = trajectory.Cause(d.text()), d.int()
			if info := d.text(); info != "" {
				r.Info = []byte(info)
			}
			if r.Failure = r.Cause.Failure(); d.format > rowFormat1 {
				r.Failure = trajectory.Failure(d.text())
			}
		}
		if flags&64 != 0 {
			o := &trajectory.Outcome{Reward: d.float()}
			over := d.flags()
			o.Terminated, o.Truncated, o.Success, o.Anchor = over&1 != 0, over&2 != 0, over&4 != 0, d.text()
			if state := d.text(); state != "" {
				o.State = []byte(state)
			}
			r.Outcome = o
		}
		t.Results = append(t.Results, r)
	}
	t.FinalAnswer = d.text()
	flags := d.flags()
	t.AnsweredThisTurn, t.InThought = flags&1 != 0, flags&4 != 0
	if flags&2 != 0 {
		reward := d.float()
		t.Reward = &reward
	}
	t.Anchor, t.Shared = d.text(), d.text()
	t.Role = d.role()
	if d.format < rowFormat4 {
		return t
	}
	if in := d.text(); in != "" {
		t.Incoming = &trajectory.Incoming{}
		if err := json.Unmarshal([]byte(in), t.Incoming); err != nil {
			d.fail("how a turn came in is no JSON")
		}
	}
	if d.format >= rowFormat6 {
		if t.Entropy = d.float(); !(t.Entropy >= 0 && !math.IsInf(t.Entropy, 1)) { // NaN included
			d.fail("an entropy is no number of 0 or more")
		}
	}
	if d.format >= rowFormat7 {
		t.Begun = d.begun(t.CompletionEnd - t.CompletionStart)
	}
	return t
}

// begun reads who began a completion of n tokens: each has one at least, and so has whose turn it is.
func (d *decoder) begun(n int) (all []trajectory.Begun) {
	for end, left := 0, d.count(); left > 0 && d.err == nil; left-- {
		b := trajectory.Begun{Shared: d.text(), End: d.small()}
		if b.End <= end || b.End >= n {
			d.fail("the beginnings of a completion are not in order")
		}
		end = b.End
		all = append(all, b)
	}
	return all
}

func decodeRows(b []byte) (rows []int64, err error) {
	last := int64(0)
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errors.New("its list of rows ends within a number")
		}
		last += int64(n)
		rows, b = append(rows, last), b[size:]
	}
	return rows, nil
}

// unblob reads a whole slice; a blob of another length is an error.
func unblob(data []byte, into any) error {
	if want := binary.Size(into); want != len(data) {
		return fmt.Errorf("a blob has %d bytes, expected %d: the store %w", len(data), want, errDamaged)
	}
	return binary.Read(bytes.NewReader(data), binary.LittleEndian, into)
}

// decodeTask keeps numbers as they are written, as reading the data does.
func decodeTask(body []byte) (task trajectory.Task, err error) {
	if len(body) == 0 {
		return task, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return task, d.Decode(&task)
}
