package wording

import (
	"bytes"
	"encoding/json"
)

// JSON is a value in one line without escapes of < > &, which a model would read as they stand, and without a newline at its end.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
