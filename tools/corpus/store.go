package corpus

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Names of a store's files.
const (
	passagesFile = "passages.jsonl"
	offsetsFile  = "passages.offsets"
)

// Store gives the passages of a folder by number. It is safe for concurrent use.
type Store struct {
	file    *os.File
	offsets []byte // [(N+1)*8] little-endian positions in the file
}

// WriteStore writes passages into a folder.
func WriteStore(dir string, passages []Passage) (err error) {
	f, err := os.Create(filepath.Join(dir, passagesFile))
	if err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = fmt.Errorf("corpus: %w", e)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	offsets := binary.LittleEndian.AppendUint64(make([]byte, 0, 8*(len(passages)+1)), 0)
	at := uint64(0)
	for _, p := range passages {
		line, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("corpus: passage %q: %w", p.ID, err)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("corpus: %w", err)
		}
		at += uint64(len(line)) + 1
		offsets = binary.LittleEndian.AppendUint64(offsets, at)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, offsetsFile), offsets, 0o644); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	return nil
}

// OpenStore opens what WriteStore wrote.
func OpenStore(dir string) (*Store, error) {
	offsets, err := os.ReadFile(filepath.Join(dir, offsetsFile))
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if len(offsets) < 8 || len(offsets)%8 != 0 {
		return nil, fmt.Errorf("corpus: %s has %d bytes, not a multiple of 8; delete the folder", filepath.Join(dir, offsetsFile), len(offsets))
	}
	f, err := os.Open(filepath.Join(dir, passagesFile))
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	return &Store{f, offsets}, nil
}

// Len is the number of passages.
func (s *Store) Len() int { return len(s.offsets)/8 - 1 }

// Passage is the i-th.
func (s *Store) Passage(i int) (Passage, error) {
	if i < 0 || i >= s.Len() {
		return Passage{}, fmt.Errorf("corpus: there is no passage %d of %d", i, s.Len())
	}
	from, to := binary.LittleEndian.Uint64(s.offsets[8*i:]), binary.LittleEndian.Uint64(s.offsets[8*i+8:])
	if to < from || to-from > 2*maxLine {
		return Passage{}, fmt.Errorf("corpus: passage %d: its place is damaged", i)
	}
	line := make([]byte, to-from)
	if _, err := s.file.ReadAt(line, int64(from)); err != nil {
		if errors.Is(err, os.ErrClosed) {
			return Passage{}, errors.New("corpus: the store is closed")
		}
		return Passage{}, fmt.Errorf("corpus: passage %d cannot be read", i) // the reason may name a path, which the model must not see
	}
	var p Passage
	if err := json.Unmarshal(line, &p); err != nil {
		return Passage{}, fmt.Errorf("corpus: passage %d is damaged", i)
	}
	return p, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.file.Close() }
