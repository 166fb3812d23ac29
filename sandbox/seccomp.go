//go:build linux

package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied are the system calls that a confined program gets EPERM for: they reach other processes, make namespaces or mounts, load code
// into the kernel, hold memory that no rlimit counts, outlive the process that made something with them, or have a history of holes and no
// use here.
var denied = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_GET_ROBUST_LIST,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, // also names of folders that landlock closes
	unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF, // rules without number
	unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
	unix.SYS_VMSPLICE, // one byte of a huge page keeps all of it, in a place of a pipe that counts as 4 KiB
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMDT,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_VHANGUP, unix.SYS_PERSONALITY, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
}

// lastKnown is the newest system call that this list was read against. Those that a newer kernel adds do not exist in a sandbox, and
// libraries go back to older ones.
const lastKnown = unix.SYS_MSEAL

// confinement says what a filter must keep a program from, beside what no program may do.
type confinement struct {
	families []uint32 // of sockets that it may make; others, such as vsock, are not bound to a network namespace
	// shared: the process table, the users, the files and the named sockets are the machine's. The program reaches itself alone, by the
	// number 0.
	shared bool
	// owner: files of the machine belong to the program's user. Landlock does not look at who changes their modes, owners and times.
	owner bool
}

// deniedToOwners are the calls that change what landlock does not look at. A time is changed by way of an open descriptor alone.
var deniedToOwners = []uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
}

// attributes are the calls that change the extended attributes of files, also of those that everyone may write.
var attributes = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
}

// Where a filter finds what: struct seccomp_data. Both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

var archs = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// setID are the bits of a mode that make a program run as its owner.
const setID = unix.S_ISUID | unix.S_ISGID

var allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}

func refuse(errno syscall.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// arg loads the lower half of an argument, which is all of an int.
func arg(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArgs + 8*n, Size: 4} }

// when decides about one system call; its body ends with an answer. The number stays loaded for the next when.
func when(number uint32, body ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(body))}}, body...)
}

// refuseBits refuses arguments with one of the bits.
func refuseBits(n, bits uint32) []bpf.Instruction {
	return []bpf.Instruction{arg(n), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1}, refuse(unix.EPERM), allow}
}

// allowZero allows an argument that is 0.
func allowZero(n uint32) []bpf.Instruction {
	return []bpf.Instruction{arg(n), bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, refuse(unix.EPERM), allow}
}

// allowOwn allows calls for a process (or group, which is the tree's own) of the number 0, and none for all processes of a user.
func allowOwn(user uint32) []bpf.Instruction {
	return []bpf.Instruction{
		arg(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: user, SkipTrue: 2},
		arg(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		refuse(unix.EPERM), allow,
	}
}

// refuseSetIDFiles refuses to make files with setID; without one of the flags that make a file the mode is left to chance.
func refuseSetIDFiles(flags, mode uint32) []bpf.Instruction {
	return append([]bpf.Instruction{
		arg(flags), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY, SkipTrue: 1}, allow,
	}, refuseBits(mode, setID)...)
}

// filter assembles the seccomp program.
func filter(c confinement) ([]byte, error) {
	program, err := rules(c)
	if err != nil {
		return nil, err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = binary.Write(&b, binary.NativeEndian, raw)
	return b.Bytes(), err
}

func rules(c confinement) ([]bpf.Instruction, error) {
	arch, ok := archs[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("there is no seccomp filter for %s", runtime.GOARCH)
	}
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
	program = append(program, bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: lastKnown, SkipFalse: 1}, refuse(unix.ENOSYS))
	add := func(number uint32, body ...bpf.Instruction) { program = append(program, when(number, body...)...) }
	for _, number := range slices.Concat(denied, deniedHere) {
		add(number, refuse(unix.EPERM))
	}
	if c.owner {
		for _, number := range slices.Concat(deniedToOwners, deniedToOwnersHere) {
			add(number, refuse(unix.EPERM))
		}
		add(unix.SYS_UTIMENSAT, append([]bpf.Instruction{ // a path of zero: the descriptor
			bpf.LoadAbsolute{Off: offArgs + 8 + 4, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, refuse(unix.EPERM),
		}, allowZero(1)...)...)
	}
	if c.shared {
		for _, number := range []uint32{
			unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR,
		} {
			add(number, allowZero(0)...)
		}
		add(unix.SYS_SETPRIORITY, allowOwn(unix.PRIO_USER)...)
		add(unix.SYS_IOPRIO_SET, allowOwn(3)...) // IOPRIO_WHO_USER
		add(unix.SYS_PIDFD_OPEN, refuse(unix.EPERM))
		for _, number := range attributes { // cp -p and install go on where a file system has no attributes, and not where they are refused
			add(number, refuse(unix.EOPNOTSUPP))
		}
	}
	// A process that nobody may look into cannot be counted; cookies of the scheduler take processors from the machine.
	add(unix.SYS_PRCTL, arg(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PR_SET_DUMPABLE, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PR_SCHED_CORE, SkipFalse: 1}, refuse(unix.EPERM), allow)
	// The buffers of pipes and sockets keep the size that the watch counts them with. For sockets a size is a wish: granting nothing is no error.
	add(unix.SYS_FCNTL, arg(1), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETPIPE_SZ, SkipFalse: 1}, refuse(unix.EPERM), allow)
	add(unix.SYS_SETSOCKOPT, arg(1), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOL_SOCKET, SkipFalse: 4}, arg(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SO_SNDBUF, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SO_RCVBUF, SkipFalse: 1}, refuse(0), allow)
	// A file in a workspace that runs as its owner is the sandbox's user, for anyone on the machine. openat2 has its mode in memory, where
	// a filter cannot look.
	add(unix.SYS_OPENAT2, refuse(unix.ENOSYS))
	add(unix.SYS_OPENAT, refuseSetIDFiles(2, 3)...)
	add(unix.SYS_FCHMOD, refuseBits(1, setID)...)
	add(unix.SYS_FCHMODAT, refuseBits(2, setID)...)
	add(unix.SYS_FCHMODAT2, refuseBits(2, setID)...)
	add(unix.SYS_MKNODAT, refuseBits(2, setID)...)
	program = append(program, setIDHere()...)
	// clone3 has its flags in memory too: libraries go back to clone.
	add(unix.SYS_CLONE3, refuse(unix.ENOSYS))
	add(unix.SYS_CLONE, refuseBits(0, newNamespaces)...)
	// Input into a terminal that others read.
	add(unix.SYS_IOCTL, arg(1), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCLINUX, SkipFalse: 1}, refuse(unix.EPERM), allow)
	add(unix.SYS_SOCKET, c.sockets()...)
	add(unix.SYS_SOCKETPAIR, c.pairs()...)
	return append(program, allow), nil
}

// sockets allows the families, and of IP the protocols that every kernel has: for others it would load modules.
func (c confinement) sockets() []bpf.Instruction {
	body := []bpf.Instruction{arg(0)}
	for _, family := range c.families {
		if family == unix.AF_UNIX {
			body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: family, SkipFalse: 1}, allow)
			continue
		}
		body = append(body, when(family, arg(2),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_IP, SkipTrue: 3},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipTrue: 1},
			refuse(unix.EPROTONOSUPPORT), allow)...)
	}
	return append(body, refuse(unix.EAFNOSUPPORT))
}

// pairs allows those of local sockets. Where the program may make no named ones, one of datagrams would do instead: it could send to any
// named socket that it sees, such as that of the machine's log.
func (c confinement) pairs() []bpf.Instruction {
	local := []bpf.Instruction{allow}
	if !slices.Contains(c.families, unix.AF_UNIX) {
		local = []bpf.Instruction{
			arg(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf}, // without SOCK_CLOEXEC and SOCK_NONBLOCK
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 1}, refuse(unix.EPERM), allow,
		}
	}
	return append(append([]bpf.Instruction{arg(0)}, when(unix.AF_UNIX, local...)...), refuse(unix.EAFNOSUPPORT))
}
