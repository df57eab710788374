// SPDX-License-Identifier: Apache-2.0
// The error values of the whole library: a stable Code, the user's own field, the cause and the
// remedy.
//
// Nothing below the C ABI throws on user input, prints or exits; a function that can fail returns
// Status or Result<T>. Values: copyable, no ownership, safe to pass between threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace attnloom {

// Numbers are part of the C ABI (`alm_code`) and never change; new codes are appended.
enum class Code : int {
  kOk = 0,
  kSpecInvalid = 1,
  kSpecUnsupported = 2,
  kTemplate = 3,
  kCompilerMissing = 4,
  kCompilerVersion = 5,
  kCompileFailed = 6,
  kResourceLimit = 7,
  kCompileTimeout = 8,
  kCancelled = 9,
  kOutOfMemory = 10,
  kCacheCorrupt = 11,
  kCacheIo = 12,
  kNotCached = 13,
  kUntrusted = 14,
  kRemote = 15,
  kNoDriver = 16,
  kArchMismatch = 17,
  kDriverTooOld = 18,
  kLoadFailed = 19,
  kCaptureActive = 20,
  kLaunch = 21,
  kInternal = 22,
  kWorkloadInvalid = 23,
  kTensorInvalid = 24,
  kPlanBound = 25,
  kPlanMismatch = 26,
  kPlanStale = 27,
  kForked = 28,
  kNoDevice = 29,
  kArgumentInvalid = 30,
};

// The stable text of a code: "SPEC_INVALID". Never empty.
std::string_view code_name(Code code);

// True where the same call may succeed later without a change by the user (memory, time-out, driver
// busy).
bool is_retryable(Code code);

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string
      path;  // the user's field, "$.variant.mask.causl" or "workload.kv_indptr[3]"; may be empty
  std::string cause;   // one line: what was wanted and what was given
  std::string remedy;  // one line: what to do; may be empty

  bool ok() const { return code == Code::kOk; }
  std::string to_string() const;  // "SPEC_INVALID at $.x: cause (remedy)"
};

inline Status ok_status() {
  return {};
}
Status make_error(Code code, std::string path, std::string cause, std::string remedy = {});

// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, `return value;`
  // REQUIRES: !status.ok()
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok()
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace attnloom

// Propagation of errors, the one macro idiom of the code base:
//   ATTNLOOM_TRY(auto text, files.read(path));   declares `text` or returns the error
//   ATTNLOOM_CHECK(files.remove(path));          returns the error of a Status
#define ATTNLOOM_CONCAT_INNER(a, b) a##b
#define ATTNLOOM_CONCAT(a, b) ATTNLOOM_CONCAT_INNER(a, b)
#define ATTNLOOM_TRY(declaration, expression)                   \
  auto ATTNLOOM_CONCAT(attnloom_try_, __LINE__) = (expression); \
  if (!ATTNLOOM_CONCAT(attnloom_try_, __LINE__).ok())           \
    return ATTNLOOM_CONCAT(attnloom_try_, __LINE__).status();   \
  declaration = std::move(ATTNLOOM_CONCAT(attnloom_try_, __LINE__)).value()
#define ATTNLOOM_CHECK(expression)                                                \
  do {                                                                            \
    if (::attnloom::Status attnloom_status = (expression); !attnloom_status.ok()) \
      return attnloom_status;                                                     \
  } while (false)
