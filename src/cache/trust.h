// SPDX-License-Identifier: Apache-2.0
// Who vouches for a cache entry: Ed25519 keys, and the text that holds signatures.
//
//   signature text = "attnloom-signature 1\n" line*       sidecar `<entry name>.sig`, or a field of
//   line           = key id " " ptx " " base64 "\n"       a bundle's index; one line a signer
//   ptx            = SHA-256 of the PTX text as signed, or "-" for an entry made without
//   message signed = "attnloom-entry 1\nrequest_key H\nfingerprint H\ntarget T\ncubin H\nptx H\n"
//
// Both digests are signed and the PTX's stands in the line, so a signature stays valid where the
// PTX was dropped and still binds one that is there. Values, thread-safe; private keys are held by
// OpenSSL and wiped by it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/entry.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace attnloom {

// What a signature covers; digests in hex. ptx_sha256 is "" for an entry that was made without PTX
// (signing) or whose PTX is not looked at (verifying).
struct SignedFacts {
  std::string request_key;
  std::string fingerprint;
  std::string target;
  std::string cubin_sha256;
  std::string ptx_sha256;
};

// Of the parts that `entry` has unpacked: PTX that nobody unpacked is not vouched for.
SignedFacts facts_of(const Entry& entry);

// An OpenSSL key, shared by copies.
using KeyHandle = std::shared_ptr<evp_pkey_st>;

class SigningKey {
 public:
  static SigningKey generate();
  // PEM text (PKCS #8), without a password. `origin` names the place in errors: ARGUMENT_INVALID.
  static Result<SigningKey> parse(std::string_view pem, const std::string& origin);

  const std::string& key_id() const { return key_id_; }  // 16 hex digits of SHA-256(public key)
  std::string private_pem() const;
  std::string public_pem() const;  // a comment with the id, then PEM: a key file of its own
  std::string sign(const SignedFacts& facts) const;  // a line, with its newline

 private:
  explicit SigningKey(KeyHandle key);
  KeyHandle key_;
  std::string key_id_;
};

// The public keys that count. A file holds PEM blocks, lines `revoked KEYID`, `#` comments and
// blank lines; anything else is an error, because a misspelt "revoked" must not pass.
class TrustedKeys {
 public:
  TrustedKeys() = default;  // none: nothing verifies
  static Result<TrustedKeys> parse(std::string_view text, const std::string& origin);

  // UNTRUSTED, with the reason, unless one line by a listed and unrevoked key is valid for `facts`.
  Status verify(const SignedFacts& facts, std::string_view signature_text) const;
  std::vector<std::string> key_ids() const;  // listed and not revoked, sorted

 private:
  std::map<std::string, KeyHandle> keys_;
  std::set<std::string> revoked_;
};

// `text` with `line` added, replacing an earlier line of the same key; lines are sorted, so the
// order of signing does not show. An empty or foreign `text` begins a new one.
std::string add_signature(std::string_view text, const std::string& line);
// The ids of all signers named, trusted or not, sorted.
std::vector<std::string> signers_of(std::string_view text);

}  // namespace attnloom
