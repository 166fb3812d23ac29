package pyenv

import "fmt"

// Java are the variables of workers whose class starts a Java process: its heap is bounded, it takes one thread for collecting, and what hangs on
// the identity of objects repeats from process to process; a process that is killed leaves no file of its figures. heap is in MiB.
func Java(heap int) []string {
	return []string{fmt.Sprintf("JAVA_TOOL_OPTIONS=-Xmx%dm -XX:-UsePerfData -XX:+UseSerialGC -XX:+UnlockExperimentalVMOptions -XX:hashCode=2", heap)}
}
