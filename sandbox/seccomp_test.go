//go:build linux

package sandbox

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// answer runs a filter on a system call, as the kernel does, whatever this kernel knows of the call. The machine of bpf reads numbers with
// the highest byte first.
func answer(t *testing.T, c confinement, number uint32, args ...uint64) string {
	t.Helper()
	program, err := rules(c)
	require.NoError(t, err)
	vm, err := bpf.NewVM(program)
	require.NoError(t, err)
	data := binary.BigEndian.AppendUint32(nil, number)
	data = binary.BigEndian.AppendUint32(data, archs[runtime.GOARCH])
	data = binary.BigEndian.AppendUint64(data, 0) // where it was called from
	for i := range 6 {
		var arg uint64
		if i < len(args) {
			arg = args[i]
		}
		data = binary.BigEndian.AppendUint32(data, uint32(arg)) // the lower half is first
		data = binary.BigEndian.AppendUint32(data, uint32(arg>>32))
	}
	n, err := vm.Run(data)
	require.NoError(t, err)
	switch uint32(n) & 0xffff0000 {
	case unix.SECCOMP_RET_ALLOW:
		return "allow"
	case unix.SECCOMP_RET_ERRNO:
		if n&0xffff == 0 {
			return "nothing"
		}
		return unix.ErrnoName(unix.Errno(uint32(n) & 0xffff))
	default:
		return fmt.Sprintf("%#x", n)
	}
}

var (
	isolated = confinement{families: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}} // of bubblewrap
	shown    = confinement{families: []uint32{unix.AF_INET, unix.AF_INET6}}               // of bubblewrap with folders of the host
	shared   = confinement{shared: true}                                                  // of landlock for root
	owner    = confinement{shared: true, owner: true}                                     // of landlock for a user
)

func TestFilter(t *testing.T) {
	const path = 0x7fff_0000_1000 // a pointer
	minus1 := uint64(1<<64 - 1)
	for name, c := range map[string]struct {
		number                  uint32
		args                    []uint64
		isolated, shared, owner string
	}{
		"read":                           {unix.SYS_READ, nil, "allow", "allow", "allow"},
		"semget":                         {unix.SYS_SEMGET, []uint64{0, 1, 0o1600}, "EPERM", "EPERM", "EPERM"},
		"msgget":                         {unix.SYS_MSGGET, nil, "EPERM", "EPERM", "EPERM"},
		"shmat":                          {unix.SYS_SHMAT, nil, "EPERM", "EPERM", "EPERM"},
		"mq_open":                        {unix.SYS_MQ_OPEN, []uint64{path}, "EPERM", "EPERM", "EPERM"},
		"mq_unlink":                      {unix.SYS_MQ_UNLINK, []uint64{path}, "EPERM", "EPERM", "EPERM"},
		"landlock_add_rule":              {unix.SYS_LANDLOCK_ADD_RULE, []uint64{3}, "EPERM", "EPERM", "EPERM"},
		"inotify_add_watch":              {unix.SYS_INOTIFY_ADD_WATCH, []uint64{3, path}, "EPERM", "EPERM", "EPERM"},
		"io_uring_setup":                 {unix.SYS_IO_URING_SETUP, []uint64{8, path}, "EPERM", "EPERM", "EPERM"},
		"userfaultfd":                    {unix.SYS_USERFAULTFD, nil, "EPERM", "EPERM", "EPERM"},
		"perf_event_open":                {unix.SYS_PERF_EVENT_OPEN, nil, "EPERM", "EPERM", "EPERM"},
		"the last known":                 {unix.SYS_MSEAL, nil, "allow", "allow", "allow"},
		"the next":                       {unix.SYS_MSEAL + 1, nil, "ENOSYS", "ENOSYS", "ENOSYS"},
		"one of years to come":           {1000, nil, "ENOSYS", "ENOSYS", "ENOSYS"},
		"prlimit of itself":              {unix.SYS_PRLIMIT64, []uint64{0, 7, path}, "allow", "allow", "allow"},
		"prlimit of another":             {unix.SYS_PRLIMIT64, []uint64{77, 7, path}, "allow", "EPERM", "EPERM"},
		"prlimit, upper half":            {unix.SYS_PRLIMIT64, []uint64{1 << 32, 7, path}, "allow", "allow", "allow"}, // an int: the kernel drops it
		"sched_setaffinity of itself":    {unix.SYS_SCHED_SETAFFINITY, []uint64{0}, "allow", "allow", "allow"},
		"sched_setaffinity of another":   {unix.SYS_SCHED_SETAFFINITY, []uint64{77}, "allow", "EPERM", "EPERM"},
		"sched_setscheduler of another":  {unix.SYS_SCHED_SETSCHEDULER, []uint64{77}, "allow", "EPERM", "EPERM"},
		"sched_setparam of another":      {unix.SYS_SCHED_SETPARAM, []uint64{77}, "allow", "EPERM", "EPERM"},
		"sched_setattr of another":       {unix.SYS_SCHED_SETATTR, []uint64{77}, "allow", "EPERM", "EPERM"},
		"sched_getaffinity of another":   {unix.SYS_SCHED_GETAFFINITY, []uint64{77}, "allow", "allow", "allow"},
		"setpriority of itself":          {unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 0, 5}, "allow", "allow", "allow"},
		"setpriority of its group":       {unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PGRP, 0, 5}, "allow", "allow", "allow"},
		"setpriority of another":         {unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 77, 5}, "allow", "EPERM", "EPERM"},
		"setpriority of its user":        {unix.SYS_SETPRIORITY, []uint64{unix.PRIO_USER, 0, 5}, "allow", "EPERM", "EPERM"},
		"ioprio_set of itself":           {unix.SYS_IOPRIO_SET, []uint64{1, 0, 5}, "allow", "allow", "allow"},
		"ioprio_set of another":          {unix.SYS_IOPRIO_SET, []uint64{1, 77, 5}, "allow", "EPERM", "EPERM"},
		"ioprio_set of its user":         {unix.SYS_IOPRIO_SET, []uint64{3, 0, 5}, "allow", "EPERM", "EPERM"},
		"pidfd_open":                     {unix.SYS_PIDFD_OPEN, []uint64{77}, "allow", "EPERM", "EPERM"},
		"process_mrelease":               {unix.SYS_PROCESS_MRELEASE, []uint64{3}, "EPERM", "EPERM", "EPERM"},
		"prctl of a name":                {unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME, path}, "allow", "allow", "allow"},
		"prctl that hides":               {unix.SYS_PRCTL, []uint64{unix.PR_SET_DUMPABLE, 0}, "EPERM", "EPERM", "EPERM"},
		"prctl of the scheduler":         {unix.SYS_PRCTL, []uint64{unix.PR_SCHED_CORE, 1}, "EPERM", "EPERM", "EPERM"},
		"fchmodat":                       {unix.SYS_FCHMODAT, []uint64{minus1, path, 0o755}, "allow", "allow", "EPERM"},
		"fchmodat setuid":                {unix.SYS_FCHMODAT, []uint64{minus1, path, 0o4755}, "EPERM", "EPERM", "EPERM"},
		"fchmod setgid":                  {unix.SYS_FCHMOD, []uint64{3, 0o2755}, "EPERM", "EPERM", "EPERM"},
		"fchmod sticky":                  {unix.SYS_FCHMOD, []uint64{3, 0o1777}, "allow", "allow", "EPERM"},
		"fchmodat2 setuid":               {unix.SYS_FCHMODAT2, []uint64{minus1, path, 0o4755}, "EPERM", "EPERM", "EPERM"},
		"mknodat setuid":                 {unix.SYS_MKNODAT, []uint64{minus1, path, unix.S_IFREG | 0o4755}, "EPERM", "EPERM", "EPERM"},
		"openat that reads, mode chance": {unix.SYS_OPENAT, []uint64{minus1, path, unix.O_RDONLY, 0o6777}, "allow", "allow", "allow"},
		"openat of a folder":             {unix.SYS_OPENAT, []uint64{minus1, path, unix.O_DIRECTORY, 0o6777}, "allow", "allow", "allow"},
		"openat that makes":              {unix.SYS_OPENAT, []uint64{minus1, path, unix.O_CREAT, 0o777}, "allow", "allow", "allow"},
		"openat that makes setuid":       {unix.SYS_OPENAT, []uint64{minus1, path, unix.O_CREAT, 0o4777}, "EPERM", "EPERM", "EPERM"},
		"openat without name, setgid":    {unix.SYS_OPENAT, []uint64{minus1, path, unix.O_TMPFILE, 0o2777}, "EPERM", "EPERM", "EPERM"},
		"F_SETPIPE_SZ":                   {unix.SYS_FCNTL, []uint64{3, unix.F_SETPIPE_SZ, 1 << 20}, "EPERM", "EPERM", "EPERM"},
		"F_GETFD":                        {unix.SYS_FCNTL, []uint64{3, unix.F_GETFD}, "allow", "allow", "allow"},
		"SO_SNDBUF":                      {unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_SNDBUF}, "nothing", "nothing", "nothing"},
		"SO_RCVBUF":                      {unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_RCVBUF}, "nothing", "nothing", "nothing"},
		"SO_REUSEADDR":                   {unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, "allow", "allow", "allow"},
		"TCP_NODELAY":                    {unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.TCP_NODELAY}, "allow", "allow", "allow"},
		"an option of IP by that number": {unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, unix.SO_SNDBUF}, "allow", "allow", "allow"},
		"openat2":                        {unix.SYS_OPENAT2, []uint64{minus1, path, path, 24}, "ENOSYS", "ENOSYS", "ENOSYS"},
		"fchownat":                       {unix.SYS_FCHOWNAT, []uint64{minus1, path}, "allow", "allow", "EPERM"},
		"setxattr":                       {unix.SYS_SETXATTR, []uint64{path}, "allow", "ENOTSUP", "ENOTSUP"},
		"fremovexattr":                   {unix.SYS_FREMOVEXATTR, []uint64{3}, "allow", "ENOTSUP", "ENOTSUP"},
		"vmsplice":                       {unix.SYS_VMSPLICE, []uint64{3, path, 1}, "EPERM", "EPERM", "EPERM"},
		"splice":                         {unix.SYS_SPLICE, nil, "allow", "allow", "allow"},
		"utimensat of a path":            {unix.SYS_UTIMENSAT, []uint64{minus1, path}, "allow", "allow", "EPERM"},
		"utimensat of a high path":       {unix.SYS_UTIMENSAT, []uint64{minus1, 1 << 32}, "allow", "allow", "EPERM"},
		"utimensat of a descriptor":      {unix.SYS_UTIMENSAT, []uint64{3, 0}, "allow", "allow", "allow"},
		"clone of a thread":              {unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, "allow", "allow", "allow"},
		"clone of a user namespace":      {unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, "EPERM", "EPERM", "EPERM"},
		"clone3":                         {unix.SYS_CLONE3, []uint64{path}, "ENOSYS", "ENOSYS", "ENOSYS"},
		"TIOCSTI":                        {unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, "EPERM", "EPERM", "EPERM"},
		"TCGETS":                         {unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, "allow", "allow", "allow"},
		"socket local":                   {unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, "allow", "EAFNOSUPPORT", "EAFNOSUPPORT"},
		"socket TCP":                     {unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, "allow", "EAFNOSUPPORT", "EAFNOSUPPORT"},
		"socket UDP":                     {unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, "allow", "EAFNOSUPPORT", "EAFNOSUPPORT"},
		"socket SCTP":                    {unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, "EPROTONOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT"},
		"socket MPTCP":                   {unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, "EPROTONOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT"},
		"socket vsock":                   {unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT"},
		"pair of streams":                {unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, "allow", "allow", "allow"},
		"pair of datagrams":              {unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK}, "allow", "EPERM", "EPERM"},
		"pair of TIPC":                   {unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, "EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.isolated, answer(t, isolated, c.number, c.args...), "bubblewrap")
			require.Equal(t, c.shared, answer(t, shared, c.number, c.args...), "landlock, root")
			require.Equal(t, c.owner, answer(t, owner, c.number, c.args...), "landlock, a user")
		})
	}
	for _, number := range denied {
		require.Equal(t, "EPERM", answer(t, isolated, number), "%d", number)
	}
	require.Equal(t, "EAFNOSUPPORT", answer(t, shown, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0))
	require.Equal(t, "allow", answer(t, shown, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0))
	require.Equal(t, "allow", answer(t, shown, unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM))
	require.Equal(t, "EPERM", answer(t, shown, unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM))
}
