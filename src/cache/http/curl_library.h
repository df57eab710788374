// SPDX-License-Identifier: Apache-2.0
// libcurl, opened when a remote is first needed: a process without one neither links nor loads it.
// Thread-safe; once opened it stays for the life of the process.
#pragma once

#include <curl/curl.h>

#include "base/status.h"

namespace attnloom::http {

struct CurlLibrary {
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_reset) easy_reset = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
};

// REMOTE where there is none.
Result<const CurlLibrary*> curl_library();

}  // namespace attnloom::http
