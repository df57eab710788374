// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <string>

#include "spec/functor_text.h"

namespace attnloom {
namespace {

TEST_CASE("names: B121 and B123") {
  const std::string longest = "_" + std::string(63, '9');
  for (const std::string& good :
       {std::string("a"), std::string("_"), std::string("soft_cap2"), longest}) {
    CHECK(check_name(good, "$.variant.name").ok());
  }
  const std::string bad[] = {"",
                             ".",
                             "2a",
                             "a b",
                             "a-b",
                             "a/b",
                             "../../x",
                             "a<b>",
                             "a\nb",
                             "class",
                             "and",
                             "co_await",
                             longest + "9",
                             std::string(300, 'A'),
                             std::string("a\0b", 3),
                             "x(){} void y",
                             "x(){} extern \"C\" __global__ void y",
                             "..\xe2\x81\x84x",
                             "\xd0\xb0",  // Cyrillic a
                             "half; #include \"/etc/passwd\""};
  for (const std::string& name : bad) {
    INFO(name);
    const Status status = check_name(name, "$.variant.name");
    CHECK(status.code == Code::kSpecInvalid);
    CHECK(status.path == "$.variant.name");
    CHECK(status.cause.find('\n') == std::string::npos);
    CHECK(status.cause.size() < 150);
  }
}

TEST_CASE("a param hides no argument and nothing that the kernel or the compiler defines") {
  for (const char* good : {"cap", "slopes", "window", "logit", "scale", "_x"}) {
    CHECK(check_param_name(good, "$").ok());
  }
  for (const char* bad :
       {"logits", "batch",   "q_pos",       "kv_pos",      "q_head",     "kv_head",
        "q_len",  "kv_len",  "lse",         "dim",         "args",       "plan",
        "loom",   "Variant", "threadIdx",   "logits_mask", "sink_of",    "__x",
        "x__y",   "_Pragma", "LOOM_DEVICE", "return",      "NULL",       "",
        "a",      "x",       "o",           "q_pos_begin", "kv_pos_end", "q_head_end"}) {
    INFO(bad);
    CHECK(check_param_name(bad, "$").code == Code::kSpecInvalid);
  }
}

}  // namespace
}  // namespace attnloom
