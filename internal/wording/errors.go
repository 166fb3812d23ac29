package wording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// DidYouMean returns ` (did you mean "x"?)` for the known name nearest to name, or "" when none is near.
func DidYouMean(name string, known []string) string {
	n := Nearest(name, known)
	if n == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", n)
}

// JSONReason shortens an error of encoding/json to what a model or a user can mend.
func JSONReason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// UnknownKey says which key of a JSON object is none of those that it may have, with the nearest of them; "": it has no other. It tells keys apart as
// encoding/json does, which takes large letters for small ones.
func UnknownKey(object map[string]json.RawMessage, allowed ...string) string {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.ContainsFunc(allowed, func(k string) bool { return strings.EqualFold(k, key) }) {
			return fmt.Sprintf("has the unknown key %q%s; allowed: %s", Clip(key, 40), DidYouMean(key, allowed), strings.Join(allowed, ", "))
		}
	}
	return ""
}
