package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied are the system calls that a confined program gets EPERM for: they reach other processes, make namespaces or mounts, load code
// into the kernel, hold memory that no rlimit counts, or have a history of holes and no use here.
var denied = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_FANOTIFY_INIT,
	unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_SHMGET,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_VHANGUP, unix.SYS_PERSONALITY, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
}

// Where a filter finds what: struct seccomp_data. Both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
	offArg1   = 24
)

var archs = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// filter assembles the seccomp program. Of the families of sockets only those given are left: others, such as vsock, are not bound to a
// network namespace.
func filter(families ...uint32) ([]byte, error) {
	arch, ok := archs[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("there is no seccomp filter for %s", runtime.GOARCH)
	}
	refuse := func(errno uint32) bpf.Instruction { return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | errno} }
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	kill := bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		kill,
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}
	if runtime.GOARCH == "amd64" { // the x32 calls have numbers of their own
		program = append(program, bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: 0x40000000, SkipFalse: 1}, kill)
	}
	for _, number := range append(denied, deniedHere...) {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: 1}, refuse(uint32(unix.EPERM)))
	}
	// clone3 has its flags in memory, where a filter cannot look: libraries go back to clone.
	program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE3, SkipFalse: 1}, refuse(uint32(unix.ENOSYS)))
	program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE, SkipFalse: 4},
		bpf.LoadAbsolute{Off: offArg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1}, refuse(uint32(unix.EPERM)), allow)
	// Input into a terminal that others read.
	program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_IOCTL, SkipFalse: 5},
		bpf.LoadAbsolute{Off: offArg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCLINUX, SkipFalse: 1}, refuse(uint32(unix.EPERM)), allow)
	program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SOCKET, SkipFalse: 1}, allow,
		bpf.LoadAbsolute{Off: offArg0, Size: 4})
	for _, family := range families {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: family, SkipFalse: 1}, allow)
	}
	program = append(program, refuse(uint32(unix.EAFNOSUPPORT)))
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = binary.Write(&b, binary.NativeEndian, raw)
	return b.Bytes(), err
}
