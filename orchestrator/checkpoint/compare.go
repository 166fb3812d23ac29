package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Difference is a file that two checkpoints do not have alike.
type Difference struct {
	name string
	at   int // byte
}

func (d *Difference) Error() string {
	what := "the file"
	if strings.HasSuffix(d.name, ".safetensors") {
		what = "a weight"
	}
	return fmt.Sprintf("%s differs in %s, first at byte %d", what, d.name, d.at)
}

// Compare holds the files of two checkpoints against each other, byte by byte: a *Difference is the first that is not the same. run.json holds times.
func Compare(was, is string) error {
	var names []string
	for _, dir := range []string{was, is} {
		files, err := Files(dir)
		if err != nil {
			return err
		}
		names = append(names, files...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == StateFile })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		a, errA := os.ReadFile(filepath.Join(was, name))
		b, errB := os.ReadFile(filepath.Join(is, name))
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		if !bytes.Equal(a, b) {
			return &Difference{name, firstDifference(a, b)}
		}
	}
	return nil
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
