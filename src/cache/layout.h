// SPDX-License-Identifier: Apache-2.0
// Where things lie below a cache directory; docs/CACHE.md draws it. `base` is `<root>/v1`. Pure;
// thread-safe.
#pragma once

#include <string>

namespace attnloom::layout {

inline std::string base(const std::string& root) {
  return root + "/v1";
}
inline std::string toolchains(const std::string& base) {
  return base + "/TOOLCHAINS";
}
// REQUIRES: is_key(request_key), is_fingerprint(fingerprint): nothing else becomes a file name.
inline std::string entry_name(const std::string& request_key, const std::string& fingerprint) {
  return request_key + "." + fingerprint + ".alk";
}
inline std::string entry(const std::string& base, const std::string& request_key,
                         const std::string& fingerprint) {
  return base + "/k/" + request_key.substr(0, 2) + "/" + entry_name(request_key, fingerprint);
}

// The signatures of an entry in a directory stand beside it.
inline std::string signature(const std::string& entry_path) {
  return entry_path + ".sig";
}

}  // namespace attnloom::layout
