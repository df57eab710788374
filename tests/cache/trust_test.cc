// SPDX-License-Identifier: Apache-2.0
// Signatures against worked values (the key is that of RFC 8032, section 7.1, test 1; key id and
// signatures were made with sha256sum and the openssl program), and everything that must not pass.
#include "cache/trust.h"

#include <catch2/catch.hpp>

#include "base/sha256.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

constexpr const char* kPrivate =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
    "-----END PRIVATE KEY-----\n";
constexpr const char* kPublic =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
    "-----END PUBLIC KEY-----\n";
constexpr const char* kId = "21fe31dfa154a261";
constexpr const char* kTitle = "attnloom-signature 1\n";

std::string repeated(const std::string& pair) {
  std::string text;
  for (int i = 0; i < 32; ++i) text += pair;
  return text;
}

SignedFacts facts() {
  return {repeated("ab"), "2222222222222222", "sm_90a", repeated("c0"), repeated("d1")};
}

SigningKey key() {
  return SigningKey::parse(kPrivate, "test").value();
}
TrustedKeys trusted(const std::string& more = "") {
  return TrustedKeys::parse(kPublic + more, "test").value();
}
std::string signed_text(const SignedFacts& what = facts()) {
  return kTitle + key().sign(what);
}
std::string refusal(const SignedFacts& what, const std::string& text,
                    const TrustedKeys& keys = trusted()) {
  const Status status = keys.verify(what, text);
  CHECK((status.ok() || status.code == Code::kUntrusted));
  return status.cause;
}

}  // namespace

TEST_CASE("a signature is the one that another program makes") {
  CHECK(key().key_id() == kId);
  CHECK(key().private_pem() == kPrivate);
  CHECK(key().public_pem() == std::string("# attnloom key ") + kId + "\n" + kPublic);
  CHECK(key().sign(facts()) ==
        std::string(kId) + " " + repeated("d1") +
            " NCFOoPdUCJxI9b7yAInuwH4/eQC42OGe7twBLezlS3vejqPr4cnAL7Qan4sN98wRnMQv6bztSJeYoy/"
            "oJPn9AQ==\n");
  SignedFacts without = facts();
  without.ptx_sha256.clear();
  CHECK(key().sign(without) ==
        std::string(kId) +
            " - "
            "BhHfXASCnk3I/"
            "mvSrPZ00iiTBVvlMK6ae9BHhnBRwg8srXaHHJ2KAEI3urHFcbwsyJz6bgNeiWctLQZB+X2+Cw==\n");
  CHECK(trusted().verify(facts(), signed_text()).ok());
}

TEST_CASE("a signature covers every fact") {
  const std::string text = signed_text();
  std::string SignedFacts::*const fields[] = {&SignedFacts::request_key, &SignedFacts::fingerprint,
                                              &SignedFacts::cubin_sha256};
  for (const auto field : fields) {
    SignedFacts other = facts();
    (other.*field)[3] = 'e';
    CHECK(refusal(other, text) == "the signature of key 21fe31dfa154a261 is for other content");
  }
  SignedFacts other = facts();
  other.target = "sm_90";
  CHECK_FALSE(refusal(other, text).empty());
  other = facts();
  other.ptx_sha256[0] = 'e';
  CHECK(refusal(other, text) == "its PTX is not what key 21fe31dfa154a261 signed");
}

TEST_CASE("a signature stays valid where the PTX was dropped, and binds none that was not signed") {
  SignedFacts dropped = facts();
  dropped.ptx_sha256.clear();
  CHECK(trusted().verify(dropped, signed_text()).ok());
  CHECK(trusted().verify(dropped, signed_text(dropped)).ok());
  CHECK(refusal(facts(), signed_text(dropped)) ==
        "its PTX is not what key 21fe31dfa154a261 signed");
}

TEST_CASE("a target that could say something else is refused") {
  SignedFacts odd = facts();
  odd.target = "sm_90a\ncubin x";
  CHECK(refusal(odd, signed_text(odd)) == "its target or keys are not plain text");
}

TEST_CASE("only listed and unrevoked keys count") {
  const SigningKey stranger = SigningKey::generate();
  const std::string foreign = kTitle + stranger.sign(facts());
  CHECK(refusal(facts(), foreign) == "key " + stranger.key_id() + " is not listed");
  CHECK(refusal(facts(), signed_text(), TrustedKeys()) == "key 21fe31dfa154a261 is not listed");
  CHECK(refusal(facts(), signed_text(), trusted("revoked 21fe31dfa154a261\n")) ==
        "key 21fe31dfa154a261 is revoked");
  CHECK(trusted("revoked 21fe31dfa154a261\n").key_ids().empty());
  // Several signers: one that counts is enough, wherever it stands.
  const std::string both = add_signature(foreign, key().sign(facts()));
  CHECK(trusted().verify(facts(), both).ok());
  const TrustedKeys two = trusted(stranger.public_pem() + "revoked 21fe31dfa154a261\n");
  CHECK(two.verify(facts(), both).ok());
  CHECK(two.key_ids() == std::vector<std::string>{stranger.key_id()});
}

TEST_CASE("a signature text of another form is no signature") {
  CHECK(refusal(facts(), "") == "it is not signed");
  CHECK(refusal(facts(), key().sign(facts())) == "its signature is of a form not known here");
  CHECK(refusal(facts(), "attnloom-signature 2\n" + key().sign(facts())) ==
        "its signature is of a form not known here");
  const std::string good = signed_text();
  for (const std::string& bad :
       {good.substr(0, good.size() - 2), good.substr(0, good.size() - 1) + "=\n",
        std::string(kTitle) + "\n", std::string(kTitle) + kId + "\n",
        kTitle + std::string(" - \n")})
    CHECK(refusal(facts(), bad) == "no line of its signature can be read");
  // The same 64 bytes, spelt with other spare bits.
  std::string spare = good;
  spare.replace(spare.rfind("AQ=="), 4, "AR==");
  CHECK(refusal(facts(), spare) == "no line of its signature can be read");
  // A text that would cost more than a look is not walked to its end.
  std::string many = kTitle;
  for (int i = 0; i < 64; ++i) many += SigningKey::generate().sign(facts());
  CHECK_FALSE(refusal(facts(), many + key().sign(facts())).empty());
}

TEST_CASE("adding a signature replaces that of the same key, in an order of its own") {
  const SigningKey other = SigningKey::generate();
  const std::string one = add_signature("", key().sign(facts()));
  CHECK(one == signed_text());
  const std::string two = add_signature(one, other.sign(facts()));
  CHECK(two == add_signature(add_signature("", other.sign(facts())), key().sign(facts())));
  CHECK(add_signature(two, key().sign(facts())) == two);
  CHECK(add_signature("something else\n", key().sign(facts())) == one);
  CHECK(signers_of(two).size() == 2);
  CHECK(signers_of(one) == std::vector<std::string>{kId});
  CHECK(signers_of("x").empty());
}

TEST_CASE("key files") {
  CHECK(trusted().key_ids() == std::vector<std::string>{kId});
  const auto refuse = [](const std::string& text) {
    const auto keys = TrustedKeys::parse(text, "keys.pub");
    REQUIRE_FALSE(keys.ok());
    CHECK(keys.status().code == Code::kArgumentInvalid);
    CHECK(keys.status().path == "keys.pub");
    return keys.status().cause;
  };
  CHECK(refuse("") == "the key file lists no key");
  CHECK(refuse(kPublic + std::string("revokd 21fe31dfa154a261\n")) ==
        "line 4: not understood: revokd 21fe31dfa154a261");
  CHECK(refuse(kPublic + std::string("revoked 21FE\n")) ==
        "line 4: a key id is 16 lower-case hex digits, given 21FE");
  CHECK(refuse(std::string("# mine\n") + std::string(kPublic).substr(0, 40)) ==
        "line 2: a block without its END line");
  CHECK(refuse(kPrivate) == "line 1: not understood: -----BEGIN PRIVATE KEY-----");
  std::string broken = kPublic;
  broken[40] = '!';
  CHECK(refuse(broken) == "a PUBLIC KEY block that is no Ed25519 key");
  // Not an Ed25519 key: X25519 has the same length.
  CHECK(refuse("-----BEGIN PUBLIC KEY-----\n"
               "MCowBQYDK2VuAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
               "-----END PUBLIC KEY-----\n") == "a PUBLIC KEY block that is no Ed25519 key");
  std::string mailed;
  for (const char c : std::string(kPublic)) mailed += c == '\n' ? "\r\n" : std::string(1, c);
  CHECK(TrustedKeys::parse(mailed + "revoked 1111111111111111\r\n", "x").ok());
}

TEST_CASE("private keys of another form are refused without asking for a password") {
  for (const std::string& text :
       {std::string(), std::string(kPublic), std::string("-----BEGIN PRIVATE KEY-----\n"),
        // Password "x", made by `openssl pkcs8 -topk8`.
        std::string("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                    "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhkm9375ot35AICCAAw\n"
                    "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEA4ScTvjlOvRaDPVJt1+tkkEQHeo\n"
                    "gqZIAKKZyzRnyTYBbDMdHywu0/aN4kRtQszedW9Ff8xnLL72faQ3q3D9ww2uaunb\n"
                    "VplE1/uQdwPioSuY3lI=\n"
                    "-----END ENCRYPTED PRIVATE KEY-----\n")}) {
    const auto key = SigningKey::parse(text, "me.key");
    REQUIRE_FALSE(key.ok());
    CHECK(key.status().code == Code::kArgumentInvalid);
    CHECK(key.status().path == "me.key");
  }
}

TEST_CASE("the facts of an entry are those of the parts that were unpacked") {
  const Source source = fake_source();
  const std::string bytes = encode_entry(request_key(source), source, fake_artifact(source));
  const SignedFacts all = facts_of(decode_entry(bytes, Unpack::kAll).value());
  CHECK(all.request_key == request_key(source));
  CHECK(all.fingerprint == kCuda130.hex);
  CHECK(all.target == "sm_90a");
  CHECK(all.cubin_sha256 == to_hex(sha256(fake_artifact(source).cubin)));
  CHECK(all.ptx_sha256 == to_hex(sha256(fake_artifact(source).ptx)));
  CHECK(facts_of(decode_entry(bytes, Unpack::kCubinOnly).value()).ptx_sha256.empty());
}

}  // namespace attnloom
