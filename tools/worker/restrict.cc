// SPDX-License-Identifier: Apache-2.0
#include "tools/worker/restrict.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace attnloom::worker {
namespace {

// <linux/landlock.h> of Debian 12 ends with version 2, so the few numbers stand here.
constexpr long kCreateRuleset = 444;
constexpr long kRestrictSelf = 446;
constexpr unsigned kAskVersion = 1;
struct Ruleset {
  std::uint64_t files;
  std::uint64_t ports;
  std::uint64_t scopes;
};

// ASan and TSan map terabytes of address space.
#ifdef ATTNLOOM_SANITIZED
constexpr bool kMapsShadow = true;
#else
constexpr bool kMapsShadow = false;
#endif

Status failed(const char* what) {
  return make_error(Code::kUntrusted, "",
                    std::string("the compile worker cannot confine itself: ") + what + ": " +
                        std::generic_category().message(errno),
                    "see docs/SECURITY.md for what the kernel must offer");
}

Status limit(decltype(RLIMIT_AS) which, std::uint64_t soft, std::uint64_t hard) {
  rlimit now = {};
  if (::getrlimit(which, &now) != 0) return failed("getrlimit");
  // A hard limit that stands may be lower, and cannot be raised.
  const rlimit wanted = {std::min<rlim_t>(soft, now.rlim_max),
                         std::min<rlim_t>(hard, now.rlim_max)};
  return ::setrlimit(which, &wanted) == 0 ? ok_status() : failed("setrlimit");
}

// Root could raise its limits again, and reads every file where Landlock is missing.
Status drop_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return ::syscall(SYS_capset, &header, none) == 0 ? ok_status() : failed("capset");
}

}  // namespace

int landlock_version() {
  const long version = ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  return version < 0 ? 0 : static_cast<int>(version);
}

// A ruleset without a rule: NVRTC and its builtins are loaded by now, and compile without a file.
Status close_files(int version) {
  Ruleset ruleset = {(1u << 13) - 1, 0, 0};
  if (version >= 2) ruleset.files |= 1u << 13;  // refer
  if (version >= 3) ruleset.files |= 1u << 14;  // truncate
  if (version >= 5) ruleset.files |= 1u << 15;  // ioctl of devices
  if (version >= 4) ruleset.ports = 3;          // TCP bind and connect
  if (version >= 6) ruleset.scopes = 3;         // abstract sockets, signals
  const std::size_t bytes = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  const int fd = static_cast<int>(::syscall(kCreateRuleset, &ruleset, bytes, 0));
  if (fd < 0) return failed("landlock_create_ruleset");
  const long result = ::syscall(kRestrictSelf, fd, 0);
  const Status status = result == 0 ? ok_status() : failed("landlock_restrict_self");
  ::close(fd);
  return status;
}

Status limit_resources(const Restriction& restriction) {
  if (!kMapsShadow)
    ATTNLOOM_CHECK(
        limit(RLIMIT_AS, restriction.address_space_bytes, restriction.address_space_bytes));
  // At the soft limit SIGXCPU, which the parent tells from other ends.
  ATTNLOOM_CHECK(limit(RLIMIT_CPU, restriction.cpu_seconds, restriction.cpu_seconds + 1));
  ATTNLOOM_CHECK(limit(RLIMIT_FSIZE, 0, 0));
  ATTNLOOM_CHECK(limit(RLIMIT_CORE, 0, 0));
  ATTNLOOM_CHECK(limit(RLIMIT_MEMLOCK, 0, 0));
  ATTNLOOM_CHECK(limit(RLIMIT_MSGQUEUE, 0, 0));
  // 0 to 2 are open and stay so. RLIMIT_NPROC counts all processes of the user, so it cannot be
  // set without breaking the compiler's own thread; filter_calls refuses processes instead.
  return limit(RLIMIT_NOFILE, 3, 3);
}

Status restrict_process(const Restriction& restriction) {
  const int version = restriction.landlock_version.value_or(landlock_version());
  if (version < 1 && !restriction.weak_sandbox) {
    return make_error(Code::kUntrusted, "",
                      "untrusted text is not compiled here: this kernel has no Landlock (Linux "
                      "5.13, and \"landlock\" among its security modules)",
                      "boot with lsm=landlock,..., or accept less with --weak-sandbox");
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_DUMPABLE, 0);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("no_new_privs");
  ATTNLOOM_CHECK(drop_capabilities());
  if (version >= 1) ATTNLOOM_CHECK(close_files(version));
  ATTNLOOM_CHECK(limit_resources(restriction));
  const Status filtered = filter_calls();
  return restriction.weak_sandbox ? ok_status() : filtered;
}

}  // namespace attnloom::worker
