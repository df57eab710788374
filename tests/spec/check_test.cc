// SPDX-License-Identifier: Apache-2.0
#include "spec/check.h"

#include <catch2/catch.hpp>
#include <string>

#include "examples.h"
#include "spec/parse.h"
#include "spec/tiles.h"

namespace attnloom {
namespace {

void refuse(const Spec& spec, const std::string& path, const std::string& part,
            Code code = Code::kSpecUnsupported) {
  const Status status = check_spec(spec);
  INFO(status.to_string());
  CHECK(status.code == code);
  CHECK(status.path == path);
  CHECK(status.to_string().find(part) != std::string::npos);
}

void accept(const Spec& spec) {
  const Status status = check_spec(spec);
  INFO(status.to_string());
  CHECK(status.ok());
}

TEST_CASE("what this version runs") {
  accept(plain_spec());
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const int qk : {16, 64, 80, 128, 256}) {
      for (const int vo : {16, 64, 80, 128, 256}) {
        Spec spec = plain_spec();
        spec.dtype = {dtype, dtype, dtype};
        spec.head_dim = {qk, vo};
        accept(spec);
      }
    }
  }
  for (const KvLayout layout : {KvLayout::kRagged, KvLayout::kPadded}) {
    Spec spec = plain_spec();
    spec.layout = {layout};
    spec.variant.mask.custom = true;
    accept(spec);
  }
  for (const int rows : {1, 5, 16, 65536}) {
    for (const int columns : {1, 3, 128, 65536}) {
      Spec spec = plain_spec();
      spec.layout = {KvLayout::kBsr, 0, rows, columns};
      accept(spec);
    }
  }
  for (const int page_size : {1, 3, 16, 24, 65536}) {
    Spec spec = plain_spec();
    spec.layout = {KvLayout::kPaged, page_size};
    accept(spec);
  }
  for (const int group : {1, 7, 128}) {
    Spec spec = plain_spec();
    spec.group_size = group;
    accept(spec);
  }
  Spec merge;
  merge.kernel = KernelKind::kMerge;
  merge.target = Target{80};
  merge.head_dim.vo = 64;
  accept(merge);
}

TEST_CASE("head dims: B23") {
  for (const int dim : {-16, 0, 8, 72, 100, 264, 520, 528}) {
    Spec spec = plain_spec();
    spec.head_dim.qk = dim;
    refuse(spec, "$.head_dim.qk",
           std::to_string(dim) +
               " is not supported by this version (allowed: multiples of 16 up to 512)");
    spec = plain_spec();
    spec.head_dim.vo = dim;
    refuse(spec, "$.head_dim.vo", "allowed: multiples of 16 up to 512");
  }
  // Over 256 with query tile 1 only.
  for (const HeadDim dims : {HeadDim{272, 64}, HeadDim{64, 272}, HeadDim{512, 512}}) {
    Spec spec = plain_spec();
    spec.head_dim = dims;
    accept(spec);
    spec.tile = FixedTile{1, 16};
    accept(spec);
    spec.tile = FixedTile{16, 64};
    refuse(spec, "$.tile", "hold head dims up to 256");
    spec.tile = JointTile{{16, 64}};
    refuse(spec, "$.tile", "hold head dims up to 256");
  }
}

TEST_CASE("targets: B101") {
  for (const Target target :
       {Target{80}, Target{86}, Target{90}, Target{90, 'a'}, Target{100, 'f'}, Target{121, 'a'}}) {
    Spec spec = plain_spec();
    spec.target = target;
    accept(spec);
  }
  const auto refuse_target = [](Target target, const std::string& part) {
    Spec spec = plain_spec();
    spec.target = target;
    refuse(spec, "$.target", part);
  };
  refuse_target({75}, "\"sm_75\" is older than sm_80");
  refuse_target({70}, "cp.async");
  refuse_target({90, 'f'}, "sm_90 has no 'f' form");
  refuse_target({80, 'a'}, "sm_80 has no 'a' form");
  refuse_target({85}, "no target of this version");
  refuse_target({999}, "sm_90a");
  Spec spec = plain_spec();
  spec.target = std::nullopt;
  refuse(spec, "$.target", "no target is set", Code::kSpecInvalid);
}

TEST_CASE("a field that no kernel uses is refused: B59") {
  const auto refuse_variant = [](auto set, const std::string& path, const std::string& part) {
    Spec spec = plain_spec();
    set(spec.variant);
    refuse(spec, path, part);
  };
  refuse_variant([](Variant& v) { v.kv_scale = KvScale::kHead; }, "$.variant.kv_scale",
                 "needs an 8-bit cache, and dtype.kv is bf16");
  refuse_variant([](Variant& v) { v.compose = {"alibi"}; }, "$.variant.compose", "not put in");
}

TEST_CASE("every functor and a sink are taken, a sink without softmax is not") {
  Spec spec = plain_spec();
  Variant& v = spec.variant;
  v.prelude = "constexpr float kOne = 1.0f;";
  v.logits_transform = "return logits * kOne;";
  v.logits_mask = "return true;";
  v.output_transform = "return o;";
  v.query_transform = v.key_transform = v.value_transform = "x.scale(kOne);";
  v.params = {{"s", ParamType::kPtrF32}};
  v.sink = "s";
  CHECK(check_spec(spec).ok());
  v.softmax = false;
  refuse(spec, "$.variant.sink", "remove one of the two", Code::kSpecInvalid);
}

TEST_CASE("an 8-bit cache takes scales, and head dims of whole pairs of chunks") {
  for (const DType kv : {DType::kE4m3, DType::kE5m2}) {
    for (const KvScale scale : {KvScale::kNone, KvScale::kTensor, KvScale::kHead}) {
      Spec spec = plain_spec();
      spec.dtype.kv = kv;
      spec.variant.kv_scale = scale;
      CHECK(check_spec(spec).to_string() == ok_status().to_string());
      spec.head_dim = {192, 96};
      CHECK(check_spec(spec).ok());
      spec.variant.query_transform = "x.scale(2.0f);";
      CHECK(check_spec(spec).ok());
      spec.variant.key_transform = "x.scale(2.0f);";
      refuse(spec, "$.variant.key_transform", "8-bit cache");
      spec.variant.key_transform = "";
      spec.variant.value_transform = "x.scale(2.0f);";
      refuse(spec, "$.variant.value_transform", "8-bit cache");
      spec.variant.value_transform = "";
      spec.head_dim.qk = 80;
      refuse(spec, "$.head_dim.qk", "multiples of 32 up to 512");
      spec.head_dim = {64, 48};
      refuse(spec, "$.head_dim.vo", std::string(json_name(kv)) + ": one ldmatrix reads 32 bytes");
    }
  }
}

TEST_CASE("kernels, dtypes and layouts of later versions") {
  Spec spec = plain_spec();
  spec.dtype.kv = DType::kF16;
  refuse(spec, "$.dtype.kv", "allowed: \"bf16\", \"e4m3\", \"e5m2\"");
  spec = plain_spec();
  spec.dtype.o = DType::kF16;
  refuse(spec, "$.dtype.o", "allowed: \"bf16\"");
  spec = plain_spec();
  spec.layout.page_size = 16;
  refuse(spec, "$.layout.page_size", "only layout \"paged\"");
  spec = plain_spec();
  spec.layout.block_rows = 16;
  refuse(spec, "$.layout.block", "only layout \"bsr\"");
  spec.layout = {KvLayout::kBsr, 16, 16, 1};
  refuse(spec, "$.layout.page_size", "only layout \"paged\"");
}

Spec parsed(const Json& json) {
  Result<ParsedSpec> result = parse_spec(json.dump());
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  return result->spec;
}

TEST_CASE("what append, append_rope and page_copy run") {
  for (const Json& json : {append_json(), append_rope_json(), page_copy_json()}) {
    Spec spec = parsed(json);
    accept(spec);
    CHECK(kernel_set(spec)->size() == 1);
    CHECK(kernel_set(spec)->front().family == json["kernel"]);
    for (const DType dtype : {DType::kBf16, DType::kE5m2}) {
      spec.dtype.kv = dtype;
      accept(spec);
    }
    for (const int dim : {16, 80, 96, 192, 256}) {
      spec.head_dim = {dim, 256};
      if (spec.variant.rope) spec.variant.rope->rotary_dim = 16;
      accept(spec);
    }
  }
  Spec scaled = parsed(append_json());
  scaled.variant.kv_scale = KvScale::kHead;
  accept(scaled);
}

TEST_CASE("what append, append_rope and page_copy do not run") {
  for (const Json& json : {append_json(), append_rope_json(), page_copy_json()}) {
    const Spec good = parsed(json);
    Spec spec = good;
    for (const int dim : {0, 8, 72, 272}) {
      spec.head_dim.qk = dim;
      refuse(spec, "$.head_dim.qk", "allowed: multiples of 16 up to 256");
      spec.head_dim = {128, dim};
      refuse(spec, "$.head_dim.vo", "allowed: multiples of 16 up to 256");
    }
    spec = good;
    spec.layout = {KvLayout::kRagged};
    refuse(spec, "$.layout.kv", "allowed: \"paged\"");
    spec.layout = {KvLayout::kPaged, 65537};
    refuse(spec, "$.layout.page_size", "allowed: 1 to 65536");
    spec = good;
    spec.group_size = 2;
    refuse(spec, "$", json["kernel"].dump() + " does not use");
    spec = good;
    spec.variant.mask.causal = true;
    refuse(spec, "$", json["kernel"].dump() + " does not use");
  }
  Spec spec = parsed(append_json());
  spec.dtype.kv = DType::kF16;
  refuse(spec, "$.dtype.kv", "allowed: \"bf16\", \"e4m3\", \"e5m2\"");
  spec.dtype.kv = DType::kBf16;
  spec.variant.kv_scale = KvScale::kTensor;
  refuse(spec, "$.variant.kv_scale", "allowed: \"none\"");
  spec = parsed(append_json());
  spec.variant.rope = Rope{};
  refuse(spec, "$", "\"append\" does not use");
  spec = parsed(append_rope_json());
  for (const int rotary_dim : {0, 24, 144}) {
    spec.variant.rope->rotary_dim = rotary_dim;
    refuse(spec, "$.variant.rope.rotary_dim", "allowed: multiples of 16 up to 128");
  }
  spec.variant.rope = std::nullopt;
  refuse(spec, "$.variant.rope", "missing", Code::kSpecInvalid);
  spec = plain_spec();
  spec.variant.rope = Rope{};
  refuse(spec, "$.variant.rope", "no kernel of this version uses this key");
}

TEST_CASE("ranges") {
  for (const int page_size : {0, 65537}) {
    Spec spec = plain_spec();
    spec.layout = {KvLayout::kPaged, page_size};
    refuse(spec, "$.layout.page_size", "allowed: 1 to 65536");
    spec.layout = {KvLayout::kBsr, 0, page_size, 16};
    refuse(spec, "$.layout.block[0]", "allowed: 1 to 65536");
    spec.layout = {KvLayout::kBsr, 0, 16, page_size};
    refuse(spec, "$.layout.block[1]", "allowed: 1 to 65536");
  }
  for (const int group : {0, 129}) {
    Spec spec = plain_spec();
    spec.group_size = group;
    refuse(spec, "$.group_size", "allowed: 1 to 128");
  }
  Spec spec = plain_spec();
  spec.variant.mask.window_left = -2;
  refuse(spec, "$.variant.mask.window_left", "-2", Code::kSpecInvalid);
}

TEST_CASE("specs that were not parsed are checked like those that were") {
  Spec spec = plain_spec();
  spec.variant.logits_transform = "return logits; } void f() {";
  refuse(spec, "$.variant.logits_transform", "closes nothing", Code::kSpecInvalid);
  spec = plain_spec();
  spec.variant.name = "a b";
  refuse(spec, "$.variant.name", "not a name", Code::kSpecInvalid);
  spec = plain_spec();
  spec.tile = FixedTile{48, 64};
  refuse(spec, "$.tile.q", "allowed: 1, 16, 32, 64, 128");
  Spec merge;
  merge.kernel = KernelKind::kMerge;
  merge.target = Target{80};
  merge.head_dim.vo = 64;
  merge.variant.mask.causal = true;
  refuse(merge, "$", "leave the others at their defaults");
}

}  // namespace
}  // namespace attnloom
