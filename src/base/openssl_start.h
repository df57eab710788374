// SPDX-License-Identifier: Apache-2.0
// What has to happen before any other call into libcrypto. Thread-safe.
#pragma once

#include <openssl/crypto.h>

#include <new>

namespace attnloom {

// What can fail in the calls that this guards is memory only.
inline void require_memory(bool done) {
  if (!done) throw std::bad_alloc();
}

// Our own static libcrypto must neither read OPENSSL_CONF from the environment of the host program
// nor register an exit handler in a library that may be unloaded.
inline void start_openssl() {
  require_memory(
      OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) == 1);
}

}  // namespace attnloom
