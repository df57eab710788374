// SPDX-License-Identifier: Apache-2.0
// The system calls that attnloom-cc does without. A list of what is refused, not of what is
// allowed: each NVRTC and each C library has calls of its own, and a new one must not break
// compiling.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>
#include <vector>

#include "tools/worker/restrict.h"

namespace attnloom::worker {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#endif
constexpr unsigned kX32Bit = 0x40000000;  // x86-64 calls of another numbering

constexpr unsigned kRefused[] = {
    // Network, and io_uring, which makes calls past this filter.
    SYS_socket,
    SYS_socketpair,
    425 /* io_uring_setup */,
    // Other programs and processes.
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    424 /* pidfd_send_signal */,
    434 /* pidfd_open */,
    438 /* pidfd_getfd */,
    SYS_setpriority,
    SYS_sched_setscheduler,
    SYS_sched_setaffinity,
    // The kernel's own doors.
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    // Memory that outlives the process or is not counted as its own.
    SYS_shmget,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    SYS_memfd_create,
    // What Landlock does not check.
    SYS_fchmodat,
    452 /* fchmodat2 */,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
#endif
};

constexpr unsigned kClone3 = 435;

sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

sock_filter answer(unsigned value) {
  return BPF_STMT(BPF_RET | BPF_K, value);
}

sock_filter skip_unless(unsigned how, unsigned value, unsigned char count) {
  return BPF_JUMP(BPF_JMP | how | BPF_K, value, 0, count);
}

constexpr std::size_t kNumber = offsetof(seccomp_data, nr);
constexpr std::size_t kFirstArgument = offsetof(seccomp_data, args);  // its low half
constexpr unsigned kRefuse = SECCOMP_RET_ERRNO | EPERM;

std::vector<sock_filter> make_filter(unsigned own_pid) {
  std::vector<sock_filter> filter = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      answer(SECCOMP_RET_KILL_PROCESS),
      load(kNumber),
      skip_unless(BPF_JGE, kX32Bit, 1),
      answer(kRefuse),
      // Its flags lie in memory, where a filter cannot look; the C library falls back to clone.
      skip_unless(BPF_JEQ, kClone3, 1),
      answer(SECCOMP_RET_ERRNO | ENOSYS),
      // Threads only.
      skip_unless(BPF_JEQ, SYS_clone, 4),
      load(kFirstArgument),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
      answer(kRefuse),
      answer(SECCOMP_RET_ALLOW),
      // abort() signals its own process.
      skip_unless(BPF_JEQ, SYS_tgkill, 4),
      load(kFirstArgument),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own_pid, 1, 0),
      answer(kRefuse),
      answer(SECCOMP_RET_ALLOW),
      // getrlimit() is a prlimit64 of process 0, oneself.
      skip_unless(BPF_JEQ, SYS_prlimit64, 4),
      load(kFirstArgument),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
      answer(kRefuse),
      answer(SECCOMP_RET_ALLOW),
  };
  for (const unsigned number : kRefused) {
    filter.push_back(skip_unless(BPF_JEQ, number, 1));
    filter.push_back(answer(kRefuse));
  }
  filter.push_back(answer(SECCOMP_RET_ALLOW));
  return filter;
}

}  // namespace

Status filter_calls() {
  std::vector<sock_filter> filter = make_filter(static_cast<unsigned>(::getpid()));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return ok_status();
  return make_error(Code::kUntrusted, "",
                    "untrusted text is not compiled here: the kernel takes no seccomp filter: " +
                        std::generic_category().message(errno),
                    "use a kernel with CONFIG_SECCOMP_FILTER, or accept less with --weak-sandbox");
}

}  // namespace attnloom::worker
