// SPDX-License-Identifier: Apache-2.0
#include "spec/shares.h"

#include <catch2/catch.hpp>

namespace attnloom {
namespace {

Spec paged() {
  Spec spec;
  spec.layout.kv = KvLayout::kPaged;
  spec.layout.page_size = 16;
  return spec;
}

bool shares(void (*change)(Spec&)) {
  Spec spec = paged();
  change(spec);
  return may_share_prefixes(spec);
}

TEST_CASE("Prefixes are shared where a key means the same to every request") {
  CHECK(may_share_prefixes(paged()));
  CHECK(shares([](Spec& s) { s.variant.mask.causal = true; }));
  CHECK(shares(
      [](Spec& s) { s.variant.logits_transform = "return cap * loom::tanh(logits / cap);"; }));
  CHECK(shares(
      [](Spec& s) { s.variant.logits_transform = "return logits * bias[kv_pos * 8 + q_head];"; }));
  CHECK(shares([](Spec& s) { s.variant.key_transform = "loom::rope(x, a.pos);"; }));
  CHECK(shares([](Spec& s) { s.variant.query_transform = "loom::rope(x, a.pos);"; }));
  CHECK(shares([](Spec& s) { s.variant.output_transform = "return o * batch;"; }));
  CHECK(
      shares([](Spec& s) { s.variant.logits_transform = "return logits * my_batch + batched;"; }));
}

TEST_CASE("and not where a mask or a functor tells requests apart") {
  CHECK_FALSE(shares([](Spec& s) { s.layout = {}; }));
  CHECK_FALSE(shares([](Spec& s) { s.variant.mask.window_left = 128; }));
  CHECK_FALSE(shares([](Spec& s) { s.variant.mask.window_left.reset(); }));
  CHECK_FALSE(shares([](Spec& s) { s.variant.mask.custom = true; }));
  CHECK_FALSE(shares(
      [](Spec& s) { s.variant.logits_transform = "return logits - slope * (q_pos - kv_pos);"; }));
  CHECK_FALSE(shares([](Spec& s) { s.variant.logits_mask = "return kv_pos < limit[batch];"; }));
  CHECK_FALSE(shares([](Spec& s) { s.variant.key_transform = "x.scale(a.kv_len);"; }));
  CHECK_FALSE(shares([](Spec& s) { s.variant.query_transform = "x.scale(a.q_len);"; }));
  CHECK_FALSE(shares([](Spec& s) { s.variant.tile_mask = "return skip(q_pos_begin);"; }));
  CHECK_FALSE(shares([](Spec& s) {
    s.variant.prelude = "__device__ int of(const loom::RowArgs& a) { return a.batch; }";
    s.variant.key_transform = "x.scale(of(a));";
  }));
}

}  // namespace
}  // namespace attnloom
