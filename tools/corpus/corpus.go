// Package corpus holds what the retrieval tools share: reading passages from files, keeping them beside an index, folders of a
// cache that are built once, and the text that the model reads. Functions are safe for concurrent use.
//
// It does not rank passages: packages tools/search and tools/dense do.
package corpus

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Passage is one document of a corpus.
type Passage struct {
	ID    string `json:"id"`
	Title string `json:"title,omitempty"`
	Text  string `json:"text"`
}

// Files is a parameter that names one file or several.
type Files []string

// UnmarshalJSON reads a string or a list of strings.
func (f *Files) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*f = Files{one}
		return nil
	}
	var several []string
	if err := json.Unmarshal(b, &several); err != nil {
		return errors.New("corpus must be a file or a list of files")
	}
	*f = several
	return nil
}

// maxLine bounds the memory that one line takes.
const maxLine = 16 << 20 // bytes

// Read reads the passages of files of JSON lines {"id", "title", "text"}, sorted by id; a file whose name ends in .gz is unpacked.
// The id is a string or a number, the title may be missing, other keys are ignored. In place of title and text a line may have
// "contents", as Search-R1's corpus does: the title in quotation marks, a line break, the text. Errors name the file and the line.
func Read(ctx context.Context, files []string) ([]Passage, error) {
	if len(files) == 0 {
		return nil, errNoFile
	}
	type at struct{ file, line int }
	places := map[string]at{}
	var out []Passage
	for i, file := range files {
		err := eachLine(ctx, file, func(n int, line []byte) error {
			p, err := parse(line)
			if err != nil {
				return err
			}
			if first, taken := places[p.ID]; taken {
				return fmt.Errorf("the id %q is already that of %s, line %d; give one of the two another id", p.ID, files[first.file], first.line)
			}
			places[p.ID] = at{i, n}
			out = append(out, p)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("corpus: %s: there is no passage; write JSON lines with id, title and text", strings.Join(files, ", "))
	}
	slices.SortFunc(out, func(a, b Passage) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// eachLine calls f with the number and the bytes of every line that is not blank.
func eachLine(ctx context.Context, file string, f func(n int, line []byte) error) error {
	raw, err := open(file)
	if err != nil {
		return err
	}
	defer raw.Close()
	var in io.Reader = raw
	if strings.HasSuffix(file, ".gz") {
		z, err := gzip.NewReader(bufio.NewReaderSize(raw, 1<<16))
		if err != nil {
			return fmt.Errorf("corpus: %s: not a gzip file: %w", file, err)
		}
		in = z
	}
	b := bufio.NewScanner(in)
	b.Buffer(make([]byte, 1<<16), maxLine)
	n := 0
	for b.Scan() {
		n++
		if n%1024 == 1 && ctx.Err() != nil {
			return ctx.Err()
		}
		line := b.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := f(n, line); err != nil {
			return fmt.Errorf("corpus: %s: line %d: %w", file, n, err)
		}
	}
	switch err := b.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("corpus: %s: line %d: longer than %d MiB; split the passage", file, n+1, maxLine>>20)
	case err != nil:
		return fmt.Errorf("corpus: %s: after line %d: %w", file, n, err)
	}
	return nil
}

func open(file string) (*os.File, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("corpus: %s: there is no such file", file)
	}
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	return f, nil
}

func parse(line []byte) (Passage, error) {
	var raw struct {
		ID    json.RawMessage `json:"id"`
		Title string          `json:"title"`
		Text  *string         `json:"text"`
		Whole *string         `json:"contents"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		var typed *json.UnmarshalTypeError
		if errors.As(err, &typed) && typed.Field != "" {
			return Passage{}, fmt.Errorf("%s must be a %s, not a %s", typed.Field, typed.Type, typed.Value)
		}
		return Passage{}, fmt.Errorf(`not a JSON object such as {"id": "1", "title": "…", "text": "…"}: %w`, err)
	}
	id, err := readID(raw.ID)
	if err != nil {
		return Passage{}, err
	}
	if raw.Text == nil && raw.Whole != nil {
		first, rest, _ := strings.Cut(*raw.Whole, "\n")
		raw.Title, raw.Text = strings.Trim(first, `"`), &rest
	}
	if raw.Text == nil || strings.TrimSpace(*raw.Text) == "" {
		return Passage{}, errors.New(`the passage has no "text"`)
	}
	return Passage{ID: id, Title: raw.Title, Text: *raw.Text}, nil
}

func readID(raw json.RawMessage) (string, error) {
	var id string
	var number json.Number
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", errors.New(`the passage has no "id"`)
	case json.Unmarshal(raw, &id) == nil:
	case json.Unmarshal(raw, &number) == nil:
		id = number.String()
	default:
		return "", errors.New("id must be a string or a number")
	}
	if id == "" {
		return "", errors.New(`the passage has an empty "id"`)
	}
	return id, nil
}

// Key names what is built of the bytes of files, in their order, and of settings.
func Key(ctx context.Context, files []string, settings ...string) (string, error) {
	h := sha256.New()
	for _, s := range settings {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	buffer := make([]byte, 1<<20)
	for _, file := range files {
		f, err := open(file)
		if err != nil {
			return "", err
		}
		one := sha256.New()
		for err == nil {
			var n int
			n, err = f.Read(buffer)
			one.Write(buffer[:n])
			if ctx.Err() != nil {
				err = ctx.Err()
			}
		}
		f.Close()
		if !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("corpus: %s: %w", file, err)
		}
		fmt.Fprintf(h, "%t%x", strings.HasSuffix(file, ".gz"), one.Sum(nil))
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// Layout is what the model reads: a line "Doc 1(Title: …) text" for each passage, as Search-R1 writes it. Of a text at most maxChars
// characters are kept; 0 keeps all.
func Layout(passages []Passage, maxChars int) string {
	if len(passages) == 0 {
		return "No passage matches; try other words."
	}
	var b strings.Builder
	for i, p := range passages {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "Doc %d", i+1)
		if p.Title != "" {
			fmt.Fprintf(&b, "(Title: %s)", p.Title)
		}
		b.WriteByte(' ')
		b.WriteString(Clip(p.Text, maxChars))
	}
	return b.String()
}

// Clip keeps at most n characters of s, the mark of the cut included; 0 keeps all.
func Clip(s string, n int) string {
	if n <= 0 || len(s) <= n {
		return s
	}
	left, last := n, 0
	for i := range s {
		if left == 1 {
			last = i
		}
		if left == 0 {
			return s[:last] + "…"
		}
		left--
	}
	return s
}
