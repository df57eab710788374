// SPDX-License-Identifier: Apache-2.0
#include "cache/key.h"

#include <catch2/catch.hpp>
#include <set>

#include "cache_for_tests.h"

namespace attnloom {

// Worked outside this program from the rule in key.cc. A change here makes every cache in the field
// cold: it needs a new domain and a note.
TEST_CASE("keys are what they were") {
  const std::string key = request_key(fake_source());
  CHECK(key == "ebc0f640cf066d9022a226c57ec9612b19a204ed6774ab503aa2a85c41be77d0");
  CHECK(kernel_key(key, kCuda130) ==
        "f9d3a1f4187cae43903d67c0bae001f6025ac149a7e395f47ba6cdaab5fd2fe6");
}

TEST_CASE("every field of a Source is in the key, and where one ends") {
  std::vector<Source> sources(1, fake_source());
  const auto add = [&](auto change) { change(sources.emplace_back(fake_source())); };
  add([](Source& s) { s.text += " "; });
  add([](Source& s) { s.target = "sm_90"; });
  add([](Source& s) { s.target = "sm_80"; });
  add([](Source& s) { s.target = "sm_120"; });
  add([](Source& s) { s.headers[0].text += " "; });
  add([](Source& s) { s.headers[0].name = "loom/b.cuh"; });
  add([](Source& s) { s.headers = {}; });
  add([](Source& s) { s.headers = {{"loom/a.cuhint", " a;"}}; });
  add([](Source& s) { s.headers.push_back({"loom/b.cuh", ""}); });
  add([](Source& s) { s.entries = {"one", "two"}; });
  add([](Source& s) { s.entries = {"onetwo"}; });
  add([](Source& s) { s.entries = {"two", "one"}; });
  add([](Source& s) { s.options = {"-I-O2"}; });
  add([](Source& s) { s.options = {"-I", "-O2"}; });
  add([](Source& s) { s.options = {"-O2", "-I"}; });
  add([](Source& s) { s.options = {"-I", "-O2", ""}; });
  add([](Source& s) { s.options = {"-DA=1|B=2"}; });
  add([](Source& s) { s.options = {"-DA=1", "B=2"}; });
  std::set<std::string> keys;
  for (const Source& source : sources) keys.insert(request_key(source));
  CHECK(keys.size() == sources.size());
}

TEST_CASE("equal Sources have equal keys and compilers make the difference in kernel_key only") {
  CHECK(request_key(fake_source()) == request_key(fake_source()));
  const std::string key = request_key(fake_source());
  CHECK(kernel_key(key, kCuda129) != kernel_key(key, kCuda130));
  CHECK(kernel_key(key, kCuda130) != key);
}

TEST_CASE("the digests say which field changed") {
  Source changed = fake_source();
  changed.headers[0].text = "int b;";
  const auto before = field_digests(fake_source());
  const auto after = field_digests(changed);
  std::set<std::string> differing;
  for (const auto& [name, digest] : before) {
    if (after.at(name) != digest) differing.insert(name);
  }
  CHECK(differing == std::set<std::string>{"header:loom/a.cuh"});
  CHECK(before.size() == 5);
}

}  // namespace attnloom
