// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/openssl_start.h"

namespace attnloom {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

// A hash that silently stayed zero would make all keys alike.
void require(bool done) {
  require_memory(done);
}

Context start() {
  start_openssl();
  Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  require(context != nullptr);
  require(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  return context;
}

void update(EVP_MD_CTX* context, std::string_view bytes) {
  require(EVP_DigestUpdate(context, bytes.data(), bytes.size()) == 1);
}

void update_prefixed(EVP_MD_CTX* context, std::string_view bytes) {
  char length[8];  // little endian on every machine
  for (int i = 0; i < 8; ++i) {
    length[i] = static_cast<char>(static_cast<std::uint64_t>(bytes.size()) >> (8 * i));
  }
  update(context, {length, sizeof length});
  update(context, bytes);
}

Digest finish_digest(EVP_MD_CTX* context) {
  Digest digest{};
  unsigned int bytes = 0;
  require(EVP_DigestFinal_ex(context, digest.data(), &bytes) == 1 && bytes == digest.size());
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
  const Context context = start();
  update(context.get(), bytes);
  return finish_digest(context.get());
}

struct FieldHasher::State {
  Context context;
};

FieldHasher::FieldHasher(std::string_view domain) : state_(new State{start()}) {
  update_prefixed(state_->context.get(), domain);
}

FieldHasher::~FieldHasher() = default;

FieldHasher& FieldHasher::field(std::string_view name, std::string_view bytes) {
  update_prefixed(state_->context.get(), name);
  update_prefixed(state_->context.get(), bytes);
  return *this;
}

Digest FieldHasher::finish() {
  return finish_digest(state_->context.get());
}

}  // namespace attnloom
