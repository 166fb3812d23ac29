package tools

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whole numbers are found as a regular expression finds them, in random text of JSON's signs, broken text included.
func TestWholeNumbersInRandomText(t *testing.T) {
	numbersAndTexts := regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*`)
	defined := func(data []byte) string {
		return string(numbersAndTexts.ReplaceAllFunc(data, func(m []byte) []byte {
			if m[0] == '"' {
				return m
			}
			return []byte(WholeNumber(string(m)))
		}))
	}
	r := rand.New(rand.NewPCG(1, 1))
	pieces := []string{"3.0", "-3e0", "3", "1.5", "12e2", "-", "e", "[", "]", "{", "}", ":", ",", " ", `"3.0"`, `"a\"3.0"`, `"\\"`, `"é 4.0"`, "true", "1e400", "9007199254740993.0"}
	for range 20000 {
		text := ""
		for range r.IntN(12) {
			text += pieces[r.IntN(len(pieces))]
		}
		require.Equal(t, defined([]byte(text)), string(wholeNumbers(json.RawMessage(text))), text)
	}
	for _, open := range []string{`"`, `"\`, `{"a": "3.0`} { // a text that does not end holds no number
		require.Equal(t, open, string(wholeNumbers(json.RawMessage(open))))
	}
}
