// SPDX-License-Identifier: Apache-2.0
#include "cache/trust.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/openssl_start.h"
#include "base/sha256.h"

namespace attnloom {
namespace {

constexpr std::string_view kTitle = "attnloom-signature 1\n";
constexpr std::string_view kBegin = "-----BEGIN PUBLIC KEY-----";
constexpr std::string_view kEnd = "-----END PUBLIC KEY-----";
constexpr std::string_view kRevoked = "revoked ";
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kSignatureBytes = 64;
constexpr std::size_t kSignatureDigits = 88;  // base64 of 64 bytes
constexpr std::size_t kKeyIdDigits = 16;
// Each line of a listed key costs a verification, and the text comes from whoever sent the entry.
constexpr int kMostLines = 64;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free_all)>;
using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

struct Line {
  std::string key_id;
  std::string ptx;  // "" for "-"
  std::string signature;
};

// Takes the next line off `text`, without its newline.
std::string_view next_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);  // a key file that was mailed
  return line;
}

KeyHandle adopt(EVP_PKEY* key) {
  return {key, &EVP_PKEY_free};
}

Bio memory_bio(std::string_view text = {}) {
  start_openssl();
  Bio bio(text.empty() ? BIO_new(BIO_s_mem())
                       : BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
          &BIO_free_all);
  require_memory(bio != nullptr);
  return bio;
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(bytes)};
}

std::string id_of(EVP_PKEY* key) {
  std::array<unsigned char, kKeyBytes> raw{};
  std::size_t bytes = raw.size();
  require_memory(EVP_PKEY_get_raw_public_key(key, raw.data(), &bytes) == 1);
  return to_hex(sha256({reinterpret_cast<const char*>(raw.data()), bytes})).substr(0, kKeyIdDigits);
}

bool is_ed25519(EVP_PKEY* key) {
  return key != nullptr && EVP_PKEY_get_id(key) == EVP_PKEY_ED25519;
}

// OpenSSL would otherwise ask for a password on the terminal.
int no_password(char*, int, int, void*) {
  return -1;
}

Status bad_key(const std::string& origin, const std::string& cause, const std::string& remedy) {
  return make_error(Code::kArgumentInvalid, origin, cause, remedy);
}

std::string message_of(const SignedFacts& facts) {
  return "attnloom-entry 1\nrequest_key " + facts.request_key + "\nfingerprint " +
         facts.fingerprint + "\ntarget " + facts.target + "\ncubin " + facts.cubin_sha256 +
         "\nptx " + (facts.ptx_sha256.empty() ? "-" : facts.ptx_sha256) + "\n";
}

// The fields come from a decoded entry, whose target is any text: a newline in it could say
// something else than was signed.
bool is_plain(const SignedFacts& facts) {
  return is_key(facts.request_key) && is_fingerprint(facts.fingerprint) &&
         is_key(facts.cubin_sha256) && (facts.ptx_sha256.empty() || is_key(facts.ptx_sha256)) &&
         std::all_of(facts.target.begin(), facts.target.end(), [](unsigned char c) {
           return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
         });
}

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // the call ends it with a NUL
  const int digits = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(digits));
  return text;
}

std::optional<std::string> signature_from(std::string_view base64) {
  if (base64.size() != kSignatureDigits) return std::nullopt;
  std::string bytes(kSignatureDigits / 4 * 3, '\0');
  const int got = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                  reinterpret_cast<const unsigned char*>(base64.data()),
                                  static_cast<int>(base64.size()));
  if (got < 0) return std::nullopt;
  bytes.resize(kSignatureBytes);
  // The decoder skips white space and ignores spare bits; one signature has one spelling here.
  if (to_base64(bytes) != base64) return std::nullopt;
  return bytes;
}

std::optional<Line> parse_line(std::string_view text) {
  const std::size_t first = text.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  Line line;
  line.key_id = text.substr(0, first);
  line.ptx = text.substr(first + 1, second - first - 1);
  auto signature = signature_from(text.substr(second + 1));
  if (!signature || !is_fingerprint(line.key_id)) return std::nullopt;
  if (line.ptx == "-")
    line.ptx.clear();
  else if (!is_key(line.ptx))
    return std::nullopt;
  line.signature = std::move(*signature);
  return line;
}

bool valid(EVP_PKEY* key, const std::string& message, const std::string& signature) {
  const Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  require_memory(context != nullptr &&
                 EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key) == 1);
  return EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char*>(message.data()),
                          message.size()) == 1;
}

// The key of one PEM block.
Result<KeyHandle> public_key(std::string_view block, const std::string& origin) {
  const Bio bio = memory_bio(block);
  KeyHandle key = adopt(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_password, nullptr));
  if (!is_ed25519(key.get()))
    return bad_key(origin, "a PUBLIC KEY block that is no Ed25519 key",
                   "put the .pub file there that `attnloom keygen` made");
  return key;
}

Status untrusted(const std::string& cause) {
  return make_error(Code::kUntrusted, "", cause,
                    "sign it with a key that trust_keys (ATTNLOOM_TRUST_KEYS) lists");
}

}  // namespace

SignedFacts facts_of(const Entry& entry) {
  const Artifact& artifact = entry.artifact;
  return {entry.request_key, artifact.fingerprint.hex, artifact.target,
          to_hex(sha256(artifact.cubin)), artifact.ptx.empty() ? "" : to_hex(sha256(artifact.ptx))};
}

SigningKey::SigningKey(KeyHandle key) : key_(std::move(key)), key_id_(id_of(key_.get())) {}

SigningKey SigningKey::generate() {
  start_openssl();
  KeyHandle key = adopt(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  require_memory(key != nullptr);
  return SigningKey(std::move(key));
}

Result<SigningKey> SigningKey::parse(std::string_view pem, const std::string& origin) {
  const Bio bio = memory_bio(pem);
  KeyHandle key = adopt(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (!is_ed25519(key.get()))
    return bad_key(origin, "no Ed25519 private key in PEM form without a password",
                   "make one with `attnloom keygen`");
  return SigningKey(std::move(key));
}

std::string SigningKey::private_pem() const {
  const Bio bio = memory_bio();
  require_memory(PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0, nullptr,
                                               nullptr) == 1);
  return text_of(bio.get());
}

std::string SigningKey::public_pem() const {
  const Bio bio = memory_bio();
  require_memory(PEM_write_bio_PUBKEY(bio.get(), key_.get()) == 1);
  return "# attnloom key " + key_id_ + "\n" + text_of(bio.get());
}

std::string SigningKey::sign(const SignedFacts& facts) const {
  const std::string message = message_of(facts);
  const Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  std::array<unsigned char, kSignatureBytes> signature{};
  std::size_t bytes = signature.size();
  require_memory(context != nullptr &&
                 EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
                 EVP_DigestSign(context.get(), signature.data(), &bytes,
                                reinterpret_cast<const unsigned char*>(message.data()),
                                message.size()) == 1);
  return key_id_ + " " + (facts.ptx_sha256.empty() ? "-" : facts.ptx_sha256) + " " +
         to_base64({reinterpret_cast<const char*>(signature.data()), bytes}) + "\n";
}

Result<TrustedKeys> TrustedKeys::parse(std::string_view text, const std::string& origin) {
  TrustedKeys keys;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view from_here = text;
    const std::string_view line = next_line(text);
    const auto refuse = [&](const std::string& cause) {
      return bad_key(origin, "line " + std::to_string(number) + ": " + cause,
                     "a key file holds PUBLIC KEY blocks, `revoked KEYID` and # comments");
    };
    if (line == kBegin) {
      const std::size_t end = from_here.find(kEnd);
      if (end == std::string_view::npos) return refuse("a block without its END line");
      const std::string_view block = from_here.substr(0, end + kEnd.size());
      ATTNLOOM_TRY(KeyHandle key, public_key(std::string(block) + "\n", origin));
      keys.keys_[id_of(key.get())] = key;
      number += static_cast<int>(std::count(block.begin(), block.end(), '\n'));
      text = from_here.substr(block.size());
      if (!next_line(text).empty()) return refuse("text behind the END line");
    } else if (line.starts_with(kRevoked)) {
      const std::string id(line.substr(kRevoked.size()));
      if (!is_fingerprint(id)) return refuse("a key id is 16 lower-case hex digits, given " + id);
      keys.revoked_.insert(id);
    } else if (!line.empty() && line[0] != '#') {
      return refuse("not understood: " + std::string(line.substr(0, 40)));
    }
  }
  if (keys.keys_.empty())
    return bad_key(origin, "the key file lists no key",
                   "put a .pub file of `attnloom keygen` there");
  return keys;
}

Status TrustedKeys::verify(const SignedFacts& facts, std::string_view text) const {
  if (text.empty()) return untrusted("it is not signed");
  if (!text.starts_with(kTitle)) return untrusted("its signature is of a form not known here");
  if (!is_plain(facts)) return untrusted("its target or keys are not plain text");
  text.remove_prefix(kTitle.size());
  std::string reason = "no line of its signature can be read";
  for (int number = 0; !text.empty() && number < kMostLines; ++number) {
    const std::optional<Line> line = parse_line(next_line(text));
    if (!line) continue;
    const auto key = keys_.find(line->key_id);
    if (revoked_.count(line->key_id) != 0) {
      reason = "key " + line->key_id + " is revoked";
    } else if (key == keys_.end()) {
      reason = "key " + line->key_id + " is not listed";
    } else if (!facts.ptx_sha256.empty() && facts.ptx_sha256 != line->ptx) {
      reason = "its PTX is not what key " + line->key_id + " signed";
    } else {
      SignedFacts as_signed = facts;
      as_signed.ptx_sha256 = line->ptx;
      if (valid(key->second.get(), message_of(as_signed), line->signature)) return ok_status();
      reason = "the signature of key " + line->key_id + " is for other content";
    }
  }
  return untrusted(reason);
}

std::vector<std::string> TrustedKeys::key_ids() const {
  std::vector<std::string> ids;
  for (const auto& [id, key] : keys_)
    if (revoked_.count(id) == 0) ids.push_back(id);
  return ids;
}

std::string add_signature(std::string_view text, const std::string& line) {
  std::map<std::string, std::string> lines;  // by key id
  const auto add = [&](std::string_view one) {
    if (const auto parsed = parse_line(one)) lines[parsed->key_id] = std::string(one) + "\n";
  };
  if (text.starts_with(kTitle))
    text.remove_prefix(kTitle.size());
  else
    text = {};
  while (!text.empty()) add(next_line(text));
  add(std::string_view(line).substr(0, line.find('\n')));
  std::string joined(kTitle);
  for (const auto& [id, one] : lines) joined += one;
  return joined;
}

std::vector<std::string> signers_of(std::string_view text) {
  std::vector<std::string> ids;
  if (!text.starts_with(kTitle)) return ids;
  text.remove_prefix(kTitle.size());
  while (!text.empty())
    if (const auto line = parse_line(next_line(text))) ids.push_back(line->key_id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace attnloom
