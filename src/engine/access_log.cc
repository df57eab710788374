// SPDX-License-Identifier: Apache-2.0
#include "engine/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "engine/describe.h"
#include "spec/parse.h"

namespace attnloom {
namespace {

std::string line_of(const Spec& spec, const AcquiredKernel& kernel) {
  // A kernel of another target of the device's family was served: that one is to be there again.
  Spec served = spec;
  served.target = parse_target(kernel.target);
  return canonical_json({{"classes", classes_json(kernel.choice)},
                         {"family", kernel.choice.family},
                         {"request_key", kernel.request_key},
                         {"source", origin_name(kernel.origin)},
                         {"spec", spec_to_json(served)},
                         {"target", kernel.target}}) +
         "\n";
}

// "" or why not. Opened anew each time: a rotated log goes on in the new file. Not blocking, as the
// name may be that of a pipe without a reader.
std::string append(const std::string& path, const std::string& line) {
  const int file =
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
  if (file < 0) return std::strerror(errno);
  const ssize_t written = ::write(file, line.data(), line.size());
  const std::string reason = written < 0 ? std::strerror(errno) : "the disk took a part of a line";
  ::close(file);
  return written == static_cast<ssize_t>(line.size()) ? "" : reason;
}

}  // namespace

AccessLog::AccessLog(std::string path, std::function<void(const std::string&)> warn)
    : path_(std::move(path)), warn_(std::move(warn)) {}

void AccessLog::note(const Spec& spec, const AcquiredKernel& kernel) {
  if (path_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!noted_.insert(kernel.request_key).second) return;
  }
  const std::string reason = append(path_, line_of(spec, kernel));
  if (!reason.empty() && !warned_.exchange(true))
    warn_("access log " + path_ + " cannot be written: " + reason);
}

}  // namespace attnloom
