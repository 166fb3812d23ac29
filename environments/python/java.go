package pyenv

import "fmt"

// Java are the variables of workers whose class starts a Java process. heap, in MiB, bounds its heap, of which one half is for new objects: a world is
// copied at each collection until it is old, so that few collections are cheap ones. One thread collects. Hash codes of objects are equal, so that what
// hangs on their order repeats from episode to episode; without that, ScienceWorld lists objects in another order each time, and even measures other
// temperatures. A process that is killed leaves no file of its figures.
func Java(heap int) []string {
	return []string{fmt.Sprintf("JAVA_TOOL_OPTIONS=-Xmx%dm -Xmn%dm -XX:-UsePerfData -XX:+UseSerialGC -XX:+UnlockExperimentalVMOptions -XX:hashCode=2", heap, heap/2)}
}
