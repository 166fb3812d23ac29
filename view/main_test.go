package view

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run beside each other than there are processors: most of them wait for what a page or a stream asks next.
// -parallel on the command line counts instead.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
