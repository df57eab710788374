// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstddef>
#include <iterator>

namespace attnloom {
namespace {

// By number.
constexpr std::string_view kNames[] = {
    "OK",
    "SPEC_INVALID",
    "SPEC_UNSUPPORTED",
    "TEMPLATE",
    "COMPILER_MISSING",
    "COMPILER_VERSION",
    "COMPILE_FAILED",
    "RESOURCE_LIMIT",
    "COMPILE_TIMEOUT",
    "CANCELLED",
    "OUT_OF_MEMORY",
    "CACHE_CORRUPT",
    "CACHE_IO",
    "NOT_CACHED",
    "UNTRUSTED",
    "REMOTE",
    "NO_DRIVER",
    "ARCH_MISMATCH",
    "DRIVER_TOO_OLD",
    "LOAD_FAILED",
    "CAPTURE_ACTIVE",
    "LAUNCH",
    "INTERNAL",
    "WORKLOAD_INVALID",
    "TENSOR_INVALID",
    "PLAN_BOUND",
    "PLAN_MISMATCH",
    "PLAN_STALE",
    "FORKED",
    "NO_DEVICE",
    "ARGUMENT_INVALID",
};
static_assert(std::size(kNames) == static_cast<std::size_t>(Code::kArgumentInvalid) + 1);

}  // namespace

std::string_view code_name(Code code) {
  const auto number = static_cast<std::size_t>(code);
  // A number from a newer library may come in through the C ABI.
  return number < std::size(kNames) ? kNames[number] : "UNKNOWN";
}

bool is_retryable(Code code) {
  switch (code) {
    case Code::kCompileTimeout:
    case Code::kCancelled:
    case Code::kOutOfMemory:
    case Code::kCacheIo:
    case Code::kRemote:
    case Code::kCaptureActive:
      return true;
    default:
      return false;
  }
}

std::string Status::to_string() const {
  std::string text(code_name(code));
  if (!path.empty()) text += " at " + path;
  if (!cause.empty()) text += ": " + cause;
  if (!remedy.empty()) text += " (" + remedy + ")";
  return text;
}

Status make_error(Code code, std::string path, std::string cause, std::string remedy) {
  return {code, std::move(path), std::move(cause), std::move(remedy)};
}

}  // namespace attnloom
