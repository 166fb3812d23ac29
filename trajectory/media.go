package trajectory

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// MediaKind says what a medium is.
type MediaKind string

// MediaImage is a picture.
const MediaImage MediaKind = "image"

// Digest is the SHA-256 of a medium's content: of the bytes that the model's processor gets, before it scales or cuts them.
type Digest [32]byte

// MarshalText writes the digest as 64 hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Digest) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(make([]byte, len(text)), text); err != nil || n != len(d) {
		return fmt.Errorf("trajectory: %q is no SHA-256; it has 64 hexadecimal digits", text)
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Medium is an image, or another content that is no text, within a token sequence. The ids in its place are placeholders, the same for
// every image: what the model sees there is named by kind, digest and number of tokens. (A model that scales an image to more tokens
// sees another image.)
type Medium struct {
	At     int       `json:"at"`     // position of its first placeholder
	Tokens int       `json:"tokens"` // placeholders, at least 1
	Kind   MediaKind `json:"kind"`
	SHA256 Digest    `json:"sha256"`
}

// End is the position after the last placeholder.
func (m Medium) End() int { return m.At + m.Tokens }

// CheckMedia verifies the media of a sequence of so many tokens: in order, without overlap, each within the sequence and named.
func CheckMedia(media []Medium, tokens int) error {
	end := 0
	for i, m := range media {
		switch {
		case m.Kind == "":
			return fmt.Errorf("trajectory: medium %d has no kind", i)
		case m.SHA256 == Digest{}:
			return fmt.Errorf("trajectory: medium %d (%s) has no content hash", i, m.Kind)
		case m.Tokens < 1:
			return fmt.Errorf("trajectory: medium %d (%s) stands for %d tokens, it must be at least 1", i, m.Kind, m.Tokens)
		case m.At < end:
			return fmt.Errorf("trajectory: medium %d (%s) begins at token %d, before the end of what is before it, %d", i, m.Kind, m.At, end)
		case m.Tokens > tokens-m.At:
			return fmt.Errorf("trajectory: medium %d (%s) has tokens %d to %d of a sequence with %d", i, m.Kind, m.At, m.End(), tokens)
		}
		end = m.End()
	}
	return nil
}

// Prefix is what a model has seen: token ids, and the media behind placeholders among them. Whoever keeps what was computed for a
// sequence (keys and values, a shared forward) finds it again by this, never by the ids alone: two images have the same ids.
type Prefix struct {
	IDs   []int32
	Media []Medium // as CheckMedia wants them
}

// Prefix is the first n tokens of the sample. A medium that begins before n is part of it.
func (s *Sample) Prefix(n int) Prefix {
	end := len(s.Media)
	for end > 0 && s.Media[end-1].At >= n {
		end--
	}
	return Prefix{s.TokenIDs[:n], s.Media[:end]}
}

// Equal tells whether both are the same to a model.
func (p Prefix) Equal(o Prefix) bool {
	return slices.Equal(p.IDs, o.IDs) && slices.Equal(p.Media, o.Media)
}

// agreement is the number of leading tokens with the same ids and the same media behind them.
func (p Prefix) agreement(o Prefix) int {
	n := 0
	for most := min(len(p.IDs), len(o.IDs)); n < most && p.IDs[n] == o.IDs[n]; {
		n++
	}
	if len(p.Media)+len(o.Media) == 0 {
		return n
	}
	for i := range max(len(p.Media), len(o.Media)) {
		if i < len(p.Media) && i < len(o.Media) && p.Media[i] == o.Media[i] {
			continue
		}
		for _, media := range [2][]Medium{p.Media, o.Media} { // the first medium that only one of them has
			if i < len(media) {
				n = min(n, media[i].At)
			}
		}
		break
	}
	return n
}

// Common is the length of the longest beginning that both share. It never ends within a medium.
func (p Prefix) Common(o Prefix) int {
	n := p.agreement(o)
	for _, m := range p.Media {
		if m.At < n && n < m.End() { // o has it too, or n would be at most m.At
			return m.At
		}
	}
	return n
}

// Compare orders prefixes such that those with a common beginning are neighbours: by the first token in which they differ, where a
// medium goes after the bare id, and the shorter before the longer. It is 0 for what Equal says is the same.
func (p Prefix) Compare(o Prefix) int {
	n := p.agreement(o)
	if n == min(len(p.IDs), len(o.IDs)) {
		return cmp.Or(cmp.Compare(len(p.IDs), len(o.IDs)), p.compareMedium(o, n))
	}
	return cmp.Or(cmp.Compare(p.IDs[n], o.IDs[n]), p.compareMedium(o, n))
}

// compareMedium compares the media that begin at n.
func (p Prefix) compareMedium(o Prefix, n int) int {
	a, b := p.mediumAt(n), o.mediumAt(n)
	return cmp.Or(cmp.Compare(a.Tokens, b.Tokens), cmp.Compare(a.Kind, b.Kind), slices.Compare(a.SHA256[:], b.SHA256[:]))
}

func (p Prefix) mediumAt(n int) Medium {
	i, found := slices.BinarySearchFunc(p.Media, n, func(m Medium, at int) int { return cmp.Compare(m.At, at) })
	if !found {
		return Medium{}
	}
	return p.Media[i]
}

// AppendKey appends bytes that name the tokens from start to end exactly, to those who know how many there are: the ids, four bytes
// each, then the media that stand behind any of them. Two runs of the same ids behind which other content stands, or another part of
// it, have other bytes.
func (p Prefix) AppendKey(b []byte, start, end int) []byte {
	for _, id := range p.IDs[start:end] {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return p.AppendMedia(b, start, end)
}

// AppendMedia appends bytes that name the media which stand behind any of the tokens from start to end; none where it is all text.
func (p Prefix) AppendMedia(b []byte, start, end int) []byte {
	for _, m := range p.Media {
		if m.At < end && m.End() > start {
			b = binary.AppendVarint(b, int64(m.At-start))
			b = binary.AppendUvarint(b, uint64(m.Tokens))
			b = append(b, m.SHA256[:]...)
			b = append(binary.AppendUvarint(b, uint64(len(m.Kind))), m.Kind...)
		}
	}
	return b
}

// AppendMedium appends a medium: the ids are its placeholders.
func (s *Sample) AppendMedium(kind MediaKind, sum Digest, ids []int32) error {
	if kind == "" || sum == (Digest{}) || len(ids) == 0 {
		return errors.New("trajectory: a medium needs a kind, the hash of its content and at least one placeholder token")
	}
	s.Media = append(s.Media, Medium{At: s.Len(), Tokens: len(ids), Kind: kind, SHA256: sum})
	s.AppendObservation(ids)
	return nil
}
