// SPDX-License-Identifier: Apache-2.0
#include "cache/http/curl_library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace attnloom::http {
namespace {

// Debian's GnuTLS build has the same interface and is there where git is.
constexpr const char* kFileNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

Status missing(const std::string& cause) {
  return make_error(Code::kRemote, "", cause, "install libcurl (Debian: libcurl4)");
}

Result<CurlLibrary> open_library() {
  void* handle = nullptr;
  for (const char* name : kFileNames)
    if (handle == nullptr) handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return missing("libcurl.so.4 cannot be opened");
  CurlLibrary library;
  std::string absent;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) absent = name;
  };
  decltype(&::curl_global_init) global_init = nullptr;
  bind(global_init, "curl_global_init");
  bind(library.easy_init, "curl_easy_init");
  bind(library.easy_cleanup, "curl_easy_cleanup");
  bind(library.easy_reset, "curl_easy_reset");
  bind(library.easy_setopt, "curl_easy_setopt");
  bind(library.easy_perform, "curl_easy_perform");
  bind(library.easy_getinfo, "curl_easy_getinfo");
  bind(library.easy_strerror, "curl_easy_strerror");
  bind(library.slist_append, "curl_slist_append");
  bind(library.slist_free_all, "curl_slist_free_all");
  if (!absent.empty()) return missing("libcurl has no function " + absent);
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return missing("libcurl cannot be started");
  return library;
}

}  // namespace

Result<const CurlLibrary*> curl_library() {
  static const Result<CurlLibrary> library = open_library();
  if (!library.ok()) return library.status();
  return &library.value();
}

}  // namespace attnloom::http
