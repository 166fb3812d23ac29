//go:build unix

package modelfile

import (
	"fmt"
	"os"
	"syscall"
)

// mapFile maps a whole file for reading. An empty file has no mapping.
func mapFile(path string) ([]byte, func() error, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("modelfile: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("modelfile: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("modelfile: %s is not a regular file", path)
	}
	if info.Size() == 0 {
		return nil, func() error { return nil }, nil
	}
	if int64(int(info.Size())) != info.Size() {
		return nil, nil, fmt.Errorf("modelfile: %s: %d bytes cannot be mapped on this machine", path, info.Size())
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("modelfile: mapping %s: %w", path, err)
	}
	return data, func() error { return syscall.Munmap(data) }, nil
}
