package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Decode reads the parameters of a tool or a reward into a struct with json tags, strictly.
func Decode(params map[string]any, into any) error {
	if len(params) == 0 {
		return nil
	}
	b, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("the parameters cannot be read: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		var typed *json.UnmarshalTypeError
		if errors.As(err, &typed) {
			return fmt.Errorf("the parameter %s must be of type %s, got a %s", typed.Field, typed.Type, typed.Value)
		}
		return fmt.Errorf("the parameters cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
