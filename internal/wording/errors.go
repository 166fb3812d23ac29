package wording

import (
	"cmp"
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

// ReadObject reads a JSON object, which may have these keys alone, into a struct; such is an example of one. The error goes on with a sentence that
// begins with the object; field is the key whose value does not fit, if that is it. Keys are told apart as encoding/json does, which takes large letters
// for small ones.
func ReadObject(data []byte, into any, such string, keys ...string) (field string, err error) {
	var members map[string]json.RawMessage
	if err = json.Unmarshal(data, &members); err == nil {
		for _, key := range slices.Sorted(maps.Keys(members)) {
			if !slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, key) }) {
				return "", fmt.Errorf("has the unknown key %q%s; allowed: %s", Clip(key, 40), DidYouMean(key, keys), strings.Join(keys, ", "))
			}
		}
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return NotSuch(err, such)
	}
	return "", nil
}

// NotSuch is what an error of encoding/json says of an object, as [ReadObject] says it.
func NotSuch(wrong error, such string) (field string, err error) {
	var kind *json.UnmarshalTypeError
	if errors.As(wrong, &kind) {
		field = kind.Field[strings.LastIndexByte(kind.Field, '.')+1:] // without the struct that it is embedded in
		return field, fmt.Errorf("is not such as %s: a JSON %s does not fit %s", such, Clip(kind.Value, 40), cmp.Or(field, "the whole"))
	}
	return "", fmt.Errorf("is not JSON such as %s: %s", such, JSONReason(wrong))
}
