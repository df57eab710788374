// SPDX-License-Identifier: Apache-2.0
// The wall between C and C++: statuses become alm_code and alm_error, exceptions end here, public
// structs of any age become ours. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "attnloom/attnloom.h"
#include "base/status.h"

namespace attnloom {

// Fills *error (if there is one) and returns the number. Never throws.
alm_code report(alm_error** error, const Status& status) noexcept;
alm_code report_out_of_memory(alm_error** error) noexcept;

// Runs `call`, which returns a Status.
template <class Call>
alm_code guarded(alm_error** error, Call&& call) noexcept {
  try {
    return report(error, call());
  } catch (const std::bad_alloc&) {
    return report_out_of_memory(error);
  } catch (const std::exception& exception) {
    return report(error, Status{Code::kInternal, {}, exception.what(), {}});
  } catch (...) {
    return report(error, Status{Code::kInternal, {}, {}, {}});
  }
}

Status argument_error(std::string path, std::string cause, std::string remedy = {});

// ARGUMENT_INVALID for a null pointer.
Status check_given(const void* argument, const char* name);

// A caller's enum as the number that it is: C allows any, and in C++ merely reading one that is out
// of range is undefined.
template <class Enum>
int number_of(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

// The caller's text; "" for NULL.
inline std::string text_of(const char* text) {
  return text ? text : "";
}

// A copy for the caller, or null where there is no memory.
Status give_text(const std::string& text, alm_text** out);

// A caller's struct as this version knows it: fields it does not have are zero, and fields that
// this version does not know must be zero, because nobody would act on them.
template <class Struct>
Status read_struct(const Struct* given, const char* name, Struct* out) {
  *out = {};
  ATTNLOOM_CHECK(check_given(given, name));
  const std::size_t bytes = given->struct_bytes;
  const auto* raw = reinterpret_cast<const unsigned char*>(given);
  if (bytes < sizeof(std::size_t)) {
    return argument_error(std::string(name) + ".struct_bytes",
                          "must be the size of the struct, given " + std::to_string(bytes),
                          "zero the struct and set struct_bytes to its sizeof");
  }
  for (std::size_t i = sizeof(Struct); i < bytes; ++i) {
    if (raw[i] == 0) continue;
    return argument_error(
        std::string(name) + ".struct_bytes",
        "a field that this version does not have is set (byte " + std::to_string(i) + ")",
        "leave it zero, or use a newer library");
  }
  std::memcpy(out, given, std::min(bytes, sizeof(Struct)));
  return ok_status();
}

}  // namespace attnloom
