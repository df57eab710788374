// SPDX-License-Identifier: Apache-2.0
// What an entry says of itself, and cubins under a name or target that is not theirs.
#include "cache/inspection.h"

#include <catch2/catch.hpp>

#include "../compile/nvrtc_for_tests.h"
#include "base/json.h"
#include "base/sha256.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

std::string name_of(const std::string& key, const Fingerprint& fingerprint) {
  return key + "." + fingerprint.hex + ".alk";
}

// As if the file had been made for another target: right digest, right key, wrong cubin.
Artifact relabelled(Artifact artifact, const std::string& target) {
  artifact.target = target;
  return artifact;
}

}  // namespace

TEST_CASE("an entry is shown with its figures, digests and the cubin's own words") {
  const Source source = trivial_source("sm_90");
  const auto artifact = test_toolchain()->compile(source);
  REQUIRE(artifact.ok());
  const std::string key = request_key(source);
  const std::string bytes = encode_entry(key, source, *artifact);
  const Inspection found = inspect_entry(bytes, name_of(key, artifact->fingerprint));
  CHECK(found.fault.empty());
  CHECK(found.entry.request_key == key);
  CHECK(found.entry.artifact == *artifact);
  CHECK(found.note.target == "sm_90");
  CHECK(found.cubin_sha256 == to_hex(sha256(artifact->cubin)));
  CHECK(found.ptx_sha256 == to_hex(sha256(artifact->ptx)));
  CHECK(Json::parse(found.metadata)["options"][0] == "--gpu-architecture=sm_90");
  CHECK(inspect_entry(bytes, "copy.alk").fault.empty());
  CHECK(inspect_entry(bytes, name_of(std::string(64, '0'), artifact->fingerprint)).fault ==
        "it is the entry of another key");
  CHECK(inspect_entry(bytes, name_of(key, kCuda129)).fault ==
        "it is the entry of another compiler");
  CHECK(inspect_entry(bytes.substr(1), name_of(key, artifact->fingerprint)).fault ==
        "the SHA-256 differs");
  CHECK(inspect_entry("", "").fault == "only 0 bytes");
}

TEST_CASE("a cubin of another target than its entry says is refused in every layer") {
  const auto toolchain = test_toolchain();
  // Nothing but the note tells these two apart.
  const Source family = trivial_source("sm_100f");
  const auto base = toolchain->compile(trivial_source("sm_100"));
  REQUIRE(base.ok());
  const std::string key = request_key(family);
  const Artifact wrong = relabelled(*base, "sm_100f");
  const std::string reason = "its cubin was made for sm_100, its metadata says sm_100f";
  CHECK(inspect_entry(encode_entry(key, family, wrong), name_of(key, wrong.fingerprint)).fault ==
        reason);
  const auto files = make_memory_file_system();
  REQUIRE(
      Store(*files, {.root = "/cache", .warn = {}, .care = {}}).publish(key, family, wrong).ok());
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& line) { warnings.push_back(line); };
  SECTION("the own one: it is quarantined") {
    Store store(*files, {.root = "/cache", .warn = warn, .care = {}});
    CHECK_FALSE(store.find(key, "sm_100f", {}, 0));
    CHECK(store.counters().quarantined == 1);
  }
  SECTION("a read-only one: it is passed over") {
    Store store(*files, {.root = "/other", .read_only = {"/cache"}, .warn = warn, .care = {}});
    CHECK_FALSE(store.find(key, "sm_100f", {}, 0));
    CHECK(store.counters().layers[1].corrupt == 1);
  }
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find(reason) != std::string::npos);
}

}  // namespace attnloom
