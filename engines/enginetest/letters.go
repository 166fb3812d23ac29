package enginetest

// Letters decodes a token to two bytes, the second of which may begin a stop string.
type Letters struct{}

// Bytes are those of one token.
func (Letters) Bytes(id int32) []byte { return []byte{'a' + byte(id%26), 'A' + byte(id/26%26)} }

// Decode is the text of tokens.
func (l Letters) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, l.Bytes(id)...)
	}
	return string(b)
}
