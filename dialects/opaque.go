package dialects

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"unicode/utf8"
)

// opaqueMark begins what seal makes, so that the signatures of other servers are told apart.
const opaqueMark = "agentfly1."

// seal packs a reasoning into the text that a client keeps for us without reading it: the encrypted content of Responses, the signature of
// Messages. It hides nothing from anybody; it survives clients that show, shorten or drop the reasoning itself.
func seal(reasoning string) string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(reasoning)))
	return opaqueMark + base64.RawURLEncoding.EncodeToString(append(sum, reasoning...))
}

// unseal reads what seal made; ok is false for anything else.
func unseal(text string) (reasoning string, ok bool) {
	rest, ok := strings.CutPrefix(text, opaqueMark)
	if !ok {
		return "", false
	}
	data, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil || len(data) < 4 || crc32.ChecksumIEEE(data[4:]) != binary.BigEndian.Uint32(data) || !utf8.Valid(data[4:]) {
		return "", false
	}
	return string(data[4:]), true
}
