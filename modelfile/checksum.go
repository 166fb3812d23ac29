package modelfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
)

// Checksum tells weights from others, in whatever files they lie: the SHA-256 of a line for each tensor, with the CRC-32C of its data.
func (m *Model) Checksum() (string, error) {
	names := m.Names()
	slices.Sort(names)
	sum, castagnoli := sha256.New(), crc32.MakeTable(crc32.Castagnoli)
	for _, name := range names {
		t, err := m.Tensor(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %s %v %08x\n", name, t.DType, t.Shape, crc32.Checksum(t.Data, castagnoli))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
