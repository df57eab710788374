// SPDX-License-Identifier: Apache-2.0
#include "cache/http/token.h"

#include <openssl/crypto.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "base/files.h"
#include "base/sha256.h"

namespace attnloom::http {
namespace {

constexpr std::size_t kMostTokenBytes = 4096;
constexpr std::uint32_t kOthers = 077;

Status refuse(const std::string& path, const std::string& why) {
  return make_error(Code::kCacheIo, "", path + " cannot be used: " + why,
                    "keep the secret alone in a file of mode 0600");
}

}  // namespace

Result<std::string> read_private_file(const std::string& path, std::size_t most_bytes) {
  std::error_code error;
  const std::string real = std::filesystem::canonical(path, error).string();
  if (error) return refuse(path, error.message());
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  const FileInfo info = files->info(real);
  if (!info.is_regular) return refuse(path, "it is not a file");
  if ((info.mode & kOthers) != 0) return refuse(path, "its group or others have access");
  if (info.bytes > most_bytes)
    return refuse(path, "it is longer than " + std::to_string(most_bytes) + " bytes");
  return files->read(real);
}

Result<std::string> read_token(const std::string& path) {
  ATTNLOOM_TRY(std::string token, read_private_file(path, kMostTokenBytes));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
    token.pop_back();
  if (token.empty()) return refuse(path, "it is empty");
  for (const char letter : token)
    if (letter <= ' ' || letter >= 127) return refuse(path, "it is no line of visible ASCII");
  return token;
}

// Digests have one length, so not even the token's shows.
bool same_token(std::string_view a, std::string_view b) {
  const Digest left = sha256(a);
  const Digest right = sha256(b);
  return ::CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace attnloom::http
