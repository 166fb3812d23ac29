package external

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// killBearers kills the processes that bear a variable with a value in their environment, but for this one: what an agent started keeps it, also what
// left its process group. A process that cleared its environment is not found.
func killBearers(name, value string) {
	want := []byte(name + "=" + value)
	for again := 0; again < 3; again++ { // what is killed may have started others meanwhile
		found := false
		paths, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, p := range paths {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			if err != nil || pid == os.Getpid() {
				continue
			}
			env, err := os.ReadFile(p)
			if err != nil { // it is gone, or somebody else's
				continue
			}
			for line := range bytes.SplitSeq(env, []byte{0}) {
				if bytes.Equal(line, want) {
					found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
				}
			}
		}
		if !found {
			return
		}
	}
}
