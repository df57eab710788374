// SPDX-License-Identifier: Apache-2.0
// The readers of key files and signatures. First byte: 0 a key file, 1 a signature text, 2 a
// private key.
#include "cache/trust.h"
#include "fuzz/fuzz.h"

using namespace attnloom;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [how, rest] = fuzz::undress(data, size, 3);
  static const SigningKey key = SigningKey::generate();
  static const TrustedKeys trusted = TrustedKeys::parse(key.public_pem(), "fuzz").value();
  if (how == 0) {
    if (const auto keys = TrustedKeys::parse(rest, "fuzz"); keys.ok())
      (void)keys->verify({}, "attnloom-signature 1\n");
  } else if (how == 1) {
    SignedFacts facts;
    facts.request_key = facts.cubin_sha256 = std::string(64, '0');
    facts.fingerprint = std::string(16, '0');
    facts.target = "sm_90a";
    fuzz::require(!trusted.verify(facts, rest).ok(), "nobody signed this");
    const std::string both = add_signature(rest, key.sign(facts));
    fuzz::require(signers_of(both).size() <= signers_of(rest).size() + 1, "one signer was added");
    fuzz::require(add_signature(both, key.sign(facts)) == both, "signing twice changes nothing");
  } else if (const auto parsed = SigningKey::parse(rest, "fuzz"); parsed.ok()) {
    fuzz::require(TrustedKeys::parse(parsed->public_pem(), "fuzz").ok(), "a key has a public half");
  }
  return 0;
}
