// SPDX-License-Identifier: Apache-2.0
#include "engine/explain.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "cache/key.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

Source source_of(const std::string& text, const std::string& target = "sm_90a") {
  Source source;
  source.text = text;
  source.target = target;
  source.options = {"--gpu-architecture=" + target};
  source.headers = {{"loom/a.cuh", "a"}, {"loom/b.cuh", "b"}};
  source.entries = {"attention"};
  return source;
}

CatalogEntry entry_of(const Source& source, const std::string& place = "/cache") {
  CatalogEntry entry;
  entry.place = place;
  entry.request_key = request_key(source);
  entry.compiler = {"0123456789abcdef", 13, 0, 13000};
  entry.target = source.target;
  entry.has_ptx = true;
  entry.names = source.entries;
  entry.fields = field_digests(source);
  return entry;
}

NearestEntry nearest(const Source& asked, const std::vector<CatalogEntry>& catalog, Need need = {},
                     int driver = 0) {
  auto found = nearest_entry({&asked, request_key(asked), need, driver}, catalog);
  REQUIRE(found);
  return std::move(*found);
}

std::vector<std::string> fields_of(const NearestEntry& nearest) {
  std::vector<std::string> fields;
  for (const Difference& difference : nearest.differences) fields.push_back(difference.field);
  return fields;
}

using Fields = std::vector<std::string>;

TEST_CASE("the nearest entry has the target, the kernels, and most of the key") {
  const Source asked = source_of("text");
  CHECK_FALSE(nearest_entry({&asked, request_key(asked), {}, 0}, {}));
  Source header = asked;
  header.headers[1].text = "new b";
  Source text_and_header = header;
  text_and_header.text = "other";
  Source kernel = asked;
  kernel.entries = {"merge"};
  const Source target = source_of("text", "sm_80");
  const std::vector<CatalogEntry> all = {entry_of(target), entry_of(kernel),
                                         entry_of(text_and_header), entry_of(header)};
  CHECK(fields_of(nearest(asked, all)) == Fields{"header loom/b.cuh"});
  CHECK(fields_of(nearest(asked, {all.begin(), all.begin() + 3})) ==
        Fields{"header loom/b.cuh", "text"});
  CHECK(fields_of(nearest(asked, {all.begin(), all.begin() + 2})) == Fields{"entries"});
  const NearestEntry other_target = nearest(asked, {all[0]});
  CHECK(fields_of(other_target) == Fields{"options", "target"});
  CHECK(other_target.differences[1].wanted == "sm_90a");
  CHECK(other_target.differences[1].found == "sm_80");
  CHECK(other_target.differences[1].remedy == "prewarm with --target sm_90a");
  CHECK(nearest_text(other_target) ==
        "the nearest entry, " + all[0].request_key.substr(0, 8) +
            " of NVRTC 13.0 (01234567) in /cache, differs in options, target (sm_80, wanted "
            "sm_90a)");
  Source fewer = asked;
  fewer.headers.pop_back();
  CHECK(nearest(asked, {entry_of(fewer)}).differences[0].found == "none");
}

TEST_CASE("an entry of the very key says why it is passed over") {
  const Source asked = source_of("text");
  CatalogEntry entry = entry_of(asked);
  const NearestEntry driver = nearest(asked, {entry}, {}, 12080);
  CHECK(fields_of(driver) == Fields{"driver"});
  CHECK(driver.differences[0].found == "needs 13.0");
  CHECK(driver.differences[0].wanted == "12.8");
  entry.has_ptx = false;
  CHECK(fields_of(nearest(asked, {entry}, {.cubin = false, .ptx = true})) == Fields{"ptx"});
  entry.compiler_listed = false;
  CHECK(fields_of(nearest(asked, {entry})) == Fields{"compiler"});
  entry.compiler_listed = true;
  CHECK(fields_of(nearest(asked, {entry})) == Fields{"refused"});
}

TEST_CASE("explain names the layer of each kernel, or the nearest entry of a store") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .has_device = false});
  const std::string here = "\"target\": \"sm_90a\", ";
  std::vector<ExplainedKernel> kernels = explain(*one.open(one_kernel_spec("", here)));
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].found.status().code == Code::kNotCached);
  CHECK_FALSE(kernels[0].nearest);
  REQUIRE(one.open(one_kernel_spec("", here))->prepare().ok());

  StubEngine two({.root = "", .read_only = {root / "cache"}, .has_device = false});
  kernels = explain(*two.open(one_kernel_spec("", here)));
  REQUIRE(kernels[0].found.ok());
  CHECK(kernels[0].found->origin == Origin::kReadOnly);
  kernels = explain(*two.open(one_kernel_spec("\"mask\": {\"causal\": true}", here)));
  REQUIRE(kernels[0].nearest);
  CHECK(kernels[0].nearest->entry.place == root / "cache");
  CHECK(fields_of(*kernels[0].nearest) == Fields{"text"});
  CHECK(kernels[0].request_key != kernels[0].nearest->entry.request_key);
  CHECK(two.compiler->compiles == 0);

  // Without the list of compilers no look-up finds an entry.
  std::filesystem::remove(root / "cache/v1/TOOLCHAINS");
  StubEngine three({.root = root / "cache", .has_device = false});
  kernels = explain(*three.open(one_kernel_spec("", here)));
  REQUIRE(kernels[0].nearest);
  CHECK(fields_of(*kernels[0].nearest) == Fields{"compiler"});
}

// The second step of a walk may be what is missing.
TEST_CASE("explain asks about the smaller tile where the first is there and spilled") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache"});
  one.compiler->spill_bytes = [](const Source&) { return 8; };
  one.compiler->fail = [&](const Source&) {
    return one.compiler->compiles < 2 ? ok_status() : make_error(Code::kCompilerMissing, "", "");
  };
  CHECK_FALSE(one.open(one_kernel_spec("", "", 128))->prepare().ok());
  const std::shared_ptr<KernelSet> kernels = one.open(one_kernel_spec("", "", 128));
  const std::vector<ExplainedKernel> explained = explain(*kernels);
  REQUIRE(explained[0].nearest);
  CHECK(explained[0].request_key != kernels->request_key(0).value());
  CHECK(explained[0].nearest->entry.request_key == kernels->request_key(0).value());
}

TEST_CASE("NOT_CACHED names the nearest entry, and looks for it once a key") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .has_device = false});
  const auto make = [&](const std::string& target) {
    return one.open(one_kernel_spec("", "\"target\": \"" + target + "\", "))->prepare();
  };
  REQUIRE(make("sm_80").ok());
  StubEngine two({.root = "", .read_only = {root / "cache"}, .jit = false});
  const std::string other = one_kernel_spec("\"mask\": {\"causal\": true}");
  const Status first = two.open(other)->prepare();
  CHECK(first.code == Code::kNotCached);
  CHECK(first.cause.find("is in none of: no writable cache, " + (root / "cache") +
                         "; the nearest entry, ") != std::string::npos);
  CHECK(first.cause.find("target (sm_80, wanted sm_90a), text") != std::string::npos);
  // A nearer one.
  REQUIRE(make("sm_90a").ok());
  CHECK(two.open(other)->prepare().cause == first.cause);
  StubEngine three({.root = "", .read_only = {root / "cache"}, .jit = false});
  CHECK(three.open(other)->prepare().cause.find("differs in text") != std::string::npos);
}

}  // namespace
}  // namespace attnloom
