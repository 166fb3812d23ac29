//go:build !unix

package modelfile

import (
	"fmt"
	"os"
)

// mapFile reads the whole file where there is no mmap.
func mapFile(path string) ([]byte, func() error, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("modelfile: %w", err)
	}
	return data, func() error { return nil }, nil
}
