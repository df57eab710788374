// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

// SHA256_Init is deprecated in favour of EVP_DigestInit, which finds the same code through
// providers: setting those up is 0.5 ms of the first request of a process, which needs nothing else
// of them.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/openssl_start.h"

namespace attnloom {
namespace {

// A hash that silently stayed zero would make all keys alike.
void require(bool done) {
  require_memory(done);
}

SHA256_CTX start() {
  SHA256_CTX context;
  require(SHA256_Init(&context) == 1);
  return context;
}

void update(SHA256_CTX* context, std::string_view bytes) {
  require(SHA256_Update(context, bytes.data(), bytes.size()) == 1);
}

void update_prefixed(SHA256_CTX* context, std::string_view bytes) {
  char length[8];  // little endian on every machine
  for (int i = 0; i < 8; ++i) {
    length[i] = static_cast<char>(static_cast<std::uint64_t>(bytes.size()) >> (8 * i));
  }
  update(context, {length, sizeof length});
  update(context, bytes);
}

Digest finish_digest(SHA256_CTX* context) {
  Digest digest{};
  require(SHA256_Final(digest.data(), context) == 1);
  return digest;
}

}  // namespace

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15u];
  }
  return text;
}

Digest sha256(std::string_view bytes) {
  SHA256_CTX context = start();
  update(&context, bytes);
  return finish_digest(&context);
}

struct FieldHasher::State {
  SHA256_CTX context;
};

FieldHasher::FieldHasher(std::string_view domain) : state_(new State{start()}) {
  update_prefixed(&state_->context, domain);
}

FieldHasher::~FieldHasher() = default;

FieldHasher& FieldHasher::field(std::string_view name, std::string_view bytes) {
  update_prefixed(&state_->context, name);
  update_prefixed(&state_->context, bytes);
  return *this;
}

Digest FieldHasher::finish() {
  return finish_digest(&state_->context);
}

}  // namespace attnloom
