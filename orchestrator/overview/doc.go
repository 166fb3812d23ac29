// Package overview reads what stands in run folders, for people and programs that look at runs from outside: which runs there are, how far each is,
// what it waits for, its curves, and how two runs differ. It only reads, also beside a process that trains.
//
// It does not own what it reads: the files are runfolder's, the log is the store's, the numbers are report's. It prints and draws nothing.
package overview
