package modelfile

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Source is a tensor to be written: what it is, and a function that writes its data, exactly Elements*DType.Size bytes.
type Source struct {
	Name  string
	DType DType
	Shape []int
	Write func(w io.Writer) error
}

func (s Source) bytes() int {
	n := s.DType.Size()
	for _, d := range s.Shape {
		n *= d
	}
	return n
}

// WriteSafetensors writes the tensors into one file, in order. The file appears under its name only when it is complete
// and on disk; on an error the old one stays and nothing is left over. Tensors are asked for one at a time.
func WriteSafetensors(path string, metadata map[string]string, tensors []Source) error {
	return WriteAtomic(path, func(w io.Writer) error { return writeSafetensors(w, metadata, tensors) })
}

func writeSafetensors(w io.Writer, metadata map[string]string, tensors []Source) error {
	type entry struct {
		DType   DType  `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]any{}
	if metadata != nil {
		header["__metadata__"] = metadata
	}
	at := 0
	for _, t := range tensors {
		if _, twice := header[t.Name]; twice {
			return fmt.Errorf("modelfile: writing: two tensors are named %q", t.Name)
		}
		if t.DType.Size() == 0 {
			return fmt.Errorf("modelfile: writing: %s has the unknown type %q", t.Name, t.DType)
		}
		header[t.Name] = entry{t.DType, append([]int{}, t.Shape...), [2]int{at, at + t.bytes()}}
		at += t.bytes()
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("modelfile: writing: %w", err)
	}
	for len(text)%8 != 0 { // so that the data is aligned
		text = append(text, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for _, t := range tensors {
		c := &countingWriter{w: w}
		if err := t.Write(c); err != nil {
			return fmt.Errorf("modelfile: writing %s: %w", t.Name, err)
		}
		if c.n != t.bytes() {
			return fmt.Errorf("modelfile: writing %s: got %d bytes, expected %d", t.Name, c.n, t.bytes())
		}
	}
	return nil
}

type countingWriter struct {
	w io.Writer
	n int
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}

// WriteSharded writes the tensors into dir: one model.safetensors if they fit into maxBytes (0: no limit), otherwise
// shards of at most maxBytes (a larger tensor has a shard of its own) and model.safetensors.index.json.
func WriteSharded(dir string, metadata map[string]string, tensors []Source, maxBytes int) error {
	var parts [][]Source
	size, total := 0, 0
	for _, t := range tensors {
		if n := t.bytes(); len(parts) == 0 || maxBytes > 0 && size+n > maxBytes && size > 0 {
			parts, size = append(parts, nil), 0
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], t)
		size += t.bytes()
		total += t.bytes()
	}
	if len(parts) <= 1 {
		return WriteSafetensors(filepath.Join(dir, "model.safetensors"), metadata, tensors)
	}
	where := map[string]string{}
	for i, part := range parts {
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(parts))
		if err := WriteSafetensors(filepath.Join(dir, file), metadata, part); err != nil {
			return err
		}
		for _, t := range part {
			where[t.Name] = file
		}
	}
	index := map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": where}
	return WriteJSON(filepath.Join(dir, "model.safetensors.index.json"), index)
}

// WriteJSON writes v indented, atomically.
func WriteJSON(path string, v any) error {
	return WriteAtomic(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}

// WriteAtomic gives write a buffered file next to path, syncs it to disk and renames it to path. On an error the
// temporary file is removed and path is as before.
func WriteAtomic(path string, write func(w io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("modelfile: writing %s: %w", path, err)
		}
	}()
	b := bufio.NewWriterSize(f, 1<<20)
	if err := write(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// WriteFile replaces a small file: after a kill or a loss of power it is the old one or the new one, whole.
func WriteFile(path string, text []byte, mode fs.FileMode) error {
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a killed process, maybe with another mode
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes renames in a folder survive a crash.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	return nil
}
