package sandbox

import "golang.org/x/sys/unix"

// deniedHere are those that only this architecture has.
var deniedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_USTAT, unix.SYS_SYSFS,
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
}
