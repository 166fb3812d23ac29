package corpus

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Build returns the folder of a cache that holds the store of the passages of files and what build adds to it. It is built once for
// the bytes of the files and the settings; see Folder.
func Build(ctx context.Context, files []string, cache string, settings []string, warn func(text string), build func(dir string, passages []Passage) error) (string, error) {
	return buildOf(ctx, Read, files, cache, settings, warn, build)
}

type reader func(ctx context.Context, files []string) ([]Passage, error)

func buildOf(ctx context.Context, read reader, files []string, cache string, settings []string, warn func(text string), build func(dir string, passages []Passage) error) (string, error) {
	if len(files) == 0 {
		return "", errNoFile
	}
	key, err := Key(ctx, files, settings...)
	if err != nil {
		return "", err
	}
	return Folder(ctx, cache, key, warn, func(dir string) error {
		passages, err := read(ctx, files)
		if err != nil {
			return err
		}
		now, err := Key(ctx, files, settings...)
		if err != nil {
			return err
		}
		if now != key {
			return fmt.Errorf("corpus: %s changed while it was read; run again", strings.Join(files, ", "))
		}
		if err := WriteStore(dir, passages); err != nil {
			return err
		}
		return build(dir, passages)
	})
}

var errNoFile = errors.New("corpus: no file is named; give corpus: FILE, JSON lines with id, title and text")
