package tools

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What OpenAI writes is what ReadOpenAI reads; parameters that are null or missing are nil.
func TestOpenAI(t *testing.T) {
	specs := []Spec{{Name: "less", Description: "a < b & c", Parameters: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)}, {Name: "now"}}
	data, err := OpenAI(specs)
	require.NoError(t, err)
	require.Equal(t, `[{"type":"function","function":{"name":"less","description":"a < b & c","parameters":{"type":"object","properties":{"b":{},"a":{}}}}},`+
		`{"type":"function","function":{"name":"now","description":"","parameters":null}}]`, string(data))
	var schemas []json.RawMessage
	require.NoError(t, json.Unmarshal(data, &schemas))
	for i, s := range append(schemas, json.RawMessage(`{"function":{"name":"now"}}`)) {
		spec, err := ReadOpenAI(s)
		require.NoError(t, err)
		require.Equal(t, specs[min(i, 1)], spec)
	}
	_, err = ReadOpenAI(json.RawMessage(`{"function":{"name":7}}`))
	require.Error(t, err)
}
