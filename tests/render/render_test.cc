// SPDX-License-Identifier: Apache-2.0
#include "render/render.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <clocale>
#include <fstream>
#include <iterator>
#include <locale>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "render/embedded.h"
#include "spec/check.h"
#include "spec/parse.h"
#include "specs.h"

namespace attnloom {
namespace {

Spec parsed(const std::string& json) {
  Result<ParsedSpec> result = parse_spec(json);
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  const Status status = check_spec(result->spec);
  INFO(status.to_string());
  REQUIRE(status.ok());
  return result->spec;
}

Source rendered(const Spec& spec, int kernel) {
  const Result<std::vector<KernelChoice>> kernels = kernel_set(spec);
  REQUIRE(kernels.ok());
  Result<Source> source = render(spec, kernels->at(kernel));
  INFO(source.status().to_string());
  REQUIRE(source.ok());
  return *source;
}

std::string golden_text(const std::string& name) {
  std::ifstream file(std::string(ATTNLOOM_SOURCE_DIR) + "/tests/render/golden/" + name + ".cu",
                     std::ios::binary);
  INFO(name);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// The golden files are read by people: a change of a template shows in their diff.
TEST_CASE("rendered text") {
  for (const GoldenSpec& golden : golden_specs()) {
    INFO(golden.name);
    CHECK(rendered(parsed(golden.json), golden.kernel).text == golden_text(golden.name));
  }
}

// Specs share parsed templates, and threads of a compile pool render at the same time.
TEST_CASE("threads render the same texts") {
  struct Job {
    Spec spec;
    KernelChoice choice;
    Source alone;
  };
  std::vector<Job> jobs;
  for (const GoldenSpec& golden : golden_specs()) {
    const Spec spec = parsed(golden.json);
    jobs.push_back({spec, kernel_set(spec)->at(golden.kernel), rendered(spec, golden.kernel)});
  }
  std::atomic<int> differ = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&jobs, &differ, t] {
      for (std::size_t i = 0; i < 10 * jobs.size(); ++i) {
        const Job& job = jobs[(i + t) % jobs.size()];
        const Result<Source> again = render(job.spec, job.choice);
        differ += !again.ok() || *again != job.alone;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(differ == 0);
}

TEST_CASE("what a compile depends on beside the text") {
  const Source source = rendered(parsed(golden_specs()[1].json), 4);
  CHECK(source.options ==
        std::vector<std::string>{"--gpu-architecture=sm_90a", "--no-cache", "--no-source-include",
                                 "--modify-stack-limit=false", "-std=c++17", "--ftz=true",
                                 "--prec-div=false", "--prec-sqrt=false", "--ptxas-options=-v",
                                 "--ptxas-options=--register-usage-level=10"});
  CHECK(source.target == "sm_90a");
  CHECK(source.entries == std::vector<std::string>{"attention"});
  for (const std::size_t i : {3u, 4u, 5u, 6u}) {
    const GoldenSpec golden = golden_specs()[i];
    CHECK(rendered(parsed(golden.json), 0).entries == std::vector<std::string>{golden.name});
  }
  CHECK(rendered(parsed(golden_specs()[0].json), 1).options[0] == "--gpu-architecture=sm_80");
}

TEST_CASE("headers are those that the entry reaches, sorted") {
  const auto names = [](const Source& source) {
    std::vector<std::string> list;
    for (const Header& header : source.headers) list.push_back(header.name);
    return list;
  };
  const std::vector<std::string> attention = names(rendered(parsed(golden_specs()[0].json), 1));
  const std::vector<std::string> merge = names(rendered(parsed(golden_specs()[3].json), 0));
  CHECK(std::is_sorted(attention.begin(), attention.end()));
  const auto holds = [](const std::vector<std::string>& list, const char* name) {
    return std::count(list.begin(), list.end(), name);
  };
  for (const char* name :
       {"attention_mma.cuh", "loom/ops.cuh", "loom/plan.cuh", "loom/types.cuh"}) {
    INFO(name);
    CHECK(holds(attention, name) == 1);
  }
  CHECK(holds(attention, "merge.cuh") == 0);
  CHECK(holds(merge, "merge.cuh") == 1);
  CHECK(holds(merge, "attention_mma.cuh") == 0);
}

TEST_CASE("reformatting the JSON and renaming the variant change nothing") {
  const GoldenSpec golden = golden_specs()[1];
  Json json = Json::parse(golden.json);
  json["variant"]["name"] = "a_quite_different_name";
  const Source source = rendered(parsed(golden.json), golden.kernel);
  const Source renamed = rendered(parsed(json.dump(4)), golden.kernel);
  CHECK(source == renamed);
  CHECK(source.text.find("soft_cap") == std::string::npos);
  CHECK(renamed.text.find("a_quite_different_name") == std::string::npos);
  json["variant"]["params"][0]["type"] = "i32";
  CHECK_FALSE(source == rendered(parsed(json.dump()), golden.kernel));
}

// As de_DE writes numbers; the locale itself is not installed everywhere.
struct GermanNumbers : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST_CASE("the process's locale changes nothing: B117") {
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new GermanNumbers));
  std::setlocale(LC_ALL, "de_DE.UTF-8");
  std::vector<std::string> texts;
  for (const GoldenSpec& golden : golden_specs())
    texts.push_back(rendered(parsed(golden.json), golden.kernel).text);
  std::setlocale(LC_ALL, "C");
  std::locale::global(before);
  for (std::size_t i = 0; i < texts.size(); ++i)
    CHECK(texts[i] == golden_text(golden_specs()[i].name));
  CHECK(texts[1].find("kSharedBytes = 69744;") != std::string::npos);
  CHECK(texts[2].find("kWindowLeft = 1234567;") != std::string::npos);
}

TEST_CASE("free text of a request reaches the program in functors only: B121") {
  Spec spec = parsed(golden_specs()[0].json);
  spec.variant.name = "x(){} extern \"C\" __global__ void y";
  CHECK(check_spec(spec).code == Code::kSpecInvalid);
  CHECK(rendered(spec, 1).text == golden_text("plain"));  // even unchecked
}

TEST_CASE("a functor's text is not a template") {
  Spec spec = parsed(golden_specs()[0].json);
  spec.variant.logits_transform =
      "int a[1] = {{{ 0 }}}; /* {{element}} {{#classes}} <&> */ return a[0] < 1 & 2 > 1;";
  CHECK(check_spec(spec).ok());
  CHECK(rendered(spec, 0).text.find(spec.variant.logits_transform) != std::string::npos);
}

TEST_CASE("an #include in a functor's comment is no header") {
  Spec spec = parsed(golden_specs()[0].json);
  spec.variant.logits_transform =
      "/*\n#include \"merge.cuh\"\n#include \"nowhere.cuh\"\n*/ return logits;";
  CHECK(check_spec(spec).ok());
  CHECK(rendered(spec, 0).headers == rendered(parsed(golden_specs()[0].json), 0).headers);
}

TEST_CASE("a window that never moves is a constant, one of 0 tokens is a window") {
  Spec spec = parsed(golden_specs()[0].json);
  const auto has = [&](const char* text) {
    return rendered(spec, 0).text.find(text) != std::string::npos;
  };
  CHECK(has("kWindow = false;"));
  spec.variant.mask.window_left = 0;
  CHECK((has("kWindow = true;") && has("kWindowRuntime = false;") && has("kWindowLeft = 0;")));
  spec.variant.mask.window_left = std::nullopt;
  CHECK((has("kWindow = true;") && has("kWindowRuntime = true;") && has("kWindowLeft = -1;")));
}

TEST_CASE("a spec without a target is an error of the caller") {
  Spec spec = parsed(golden_specs()[0].json);
  const KernelChoice choice = kernel_set(spec)->front();
  spec.target = std::nullopt;
  CHECK(render(spec, choice).status().code == Code::kInternal);
}

TEST_CASE("the digest of the templates is 64 hex digits and stable") {
  CHECK(template_set_digest().size() == 64);
  CHECK(template_set_digest() == template_set_digest());
  CHECK(template_set_digest().find_first_not_of("0123456789abcdef") == std::string::npos);
}

}  // namespace
}  // namespace attnloom
