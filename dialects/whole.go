package dialects

import (
	"encoding/json"
	"math"
	"strconv"
)

// Whole is a whole number of a request. It may be written as a float, 5.0 or 5e0, as OpenAI's servers and vLLM take it.
type Whole int

// Whole64 is a Whole of 64 bits.
type Whole64 int64

// UnmarshalJSON reads the number. The error is a *json.UnmarshalTypeError.
func (w *Whole) UnmarshalJSON(data []byte) error { return readWhole(data, (*int)(w)) }

// UnmarshalJSON reads the number. The error is a *json.UnmarshalTypeError.
func (w *Whole64) UnmarshalJSON(data []byte) error { return readWhole(data, (*int64)(w)) }

func readWhole[T int | int64](data []byte, to *T) error {
	err := json.Unmarshal(data, to)
	if err == nil {
		return nil
	}
	f, wrong := strconv.ParseFloat(string(data), 64)
	if wrong != nil || f != math.Trunc(f) || f < math.MinInt64 || f >= math.MaxInt64 {
		return err
	}
	*to = T(f)
	return nil
}
