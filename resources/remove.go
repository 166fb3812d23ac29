package resources

import (
	"errors"
	"io/fs"
	"os"
)

// RemoveAll removes a folder in which a program may have taken its own rights away.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = os.Chmod(dir, 0o700) // the folder itself too: opening it needs the right
	root, openErr := os.OpenRoot(dir)
	if openErr != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() { // it is read after this
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
