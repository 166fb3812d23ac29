// Package filelock keeps processes apart that would write the same files. A lock is a file's; it ends with the process, whatever
// happens to it. It does not remove the files.
package filelock
