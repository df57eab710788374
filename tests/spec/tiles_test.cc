// SPDX-License-Identifier: Apache-2.0
#include "spec/tiles.h"

#include <catch2/catch.hpp>
#include <string>

#include "examples.h"

namespace attnloom {
namespace {

constexpr int kKeptBytes = 112;  // attention_mma.cuh: Kept

Spec spec_of(Target target, int qk, int vo) {
  Spec spec = plain_spec();
  spec.target = target;
  spec.head_dim = {qk, vo};
  return spec;
}

// "16x64 + 128x32: 69744 bytes, 2 CTAs"
std::string describe(const KernelChoice& choice) {
  std::string text;
  for (const TileClass& tile : choice.classes) {
    text += (text.empty() ? "" : " + ") + std::to_string(tile.q) + "x" + std::to_string(tile.kv);
    CHECK(tile.stages == 2);
  }
  const int threads = choice.threads;
  const bool warpgroups = choice.family == "attention_wgmma";
  if (!warpgroups)
    CHECK(choice.family == (choice.classes[0].q == 1 ? "decode_simt" : "attention_mma"));
  return (warpgroups ? "warpgroups " : "") + text + ": " + std::to_string(choice.shared_bytes) +
         " bytes, " + std::to_string(choice.min_ctas_per_sm) + " CTAs" +
         (threads == 128 ? "" : " of " + std::to_string(threads));
}

std::vector<std::string> described(const Spec& spec) {
  const Result<std::vector<KernelChoice>> kernels = kernel_set(spec);
  INFO(kernels.status().to_string());
  REQUIRE(kernels.ok());
  std::vector<std::string> texts;
  for (const KernelChoice& choice : *kernels) texts.push_back(describe(choice));
  return texts;
}

Status refused(Spec spec, TileChoice tile) {
  spec.tile = std::move(tile);
  return kernel_set(spec).status();
}

using Texts = std::vector<std::string>;

// Worked by hand, each with 112 bytes for Kept. D = 128, query tile 16, KV 64: Q
// 16*128*2 = 4096 bytes, ring 2*64*256*2 = 65536; 233472 / (69632 + 1024) = 3.3 CTAs by shared
// memory, and 64 + 8 + 32 + 56 = 160 registers give 65536 / (128 * 160) = 3.2. KV 128 would
// leave 1. Query tile 32: two warps share a row block, 64 + 16 + 32 + 56 = 168 registers. Query
// tile 64, KV 64: 16384 + 65536; 2.8 CTAs. Query tile 128, KV 64: 128 + 64 + 56 = 248
// registers, 2.06 CTAs; KV 128 would need 312. Query tile 256: the same of eight warps, so one CTA;
// it has no part in the joint kernel.
TEST_CASE("auto: a kernel for each query tile, the joint one and that of warpgroups") {
  CHECK(described(spec_of({90, 'a'}, 128, 128)) ==
        Texts{"16x64: 69744 bytes, 3 CTAs", "32x64: 73840 bytes, 3 CTAs",
              "64x64: 82032 bytes, 2 CTAs", "128x64: 98416 bytes, 2 CTAs",
              "16x64 + 128x32: 69744 bytes, 2 CTAs",
              "warpgroups 128x128: 197424 bytes, 1 CTAs of 384"});
  // Without warpgroups a query tile of 256.
  CHECK(described(spec_of({90}, 128, 128))[4] == "256x64: 131184 bytes, 1 CTAs of 256");
  // 167936 bytes an SM: of query tile 32 three CTAs with a KV tile of 32 fit, of 128 one with 64.
  CHECK(described(spec_of({80}, 128, 128)) ==
        Texts{"16x64: 69744 bytes, 2 CTAs", "32x32: 41072 bytes, 3 CTAs",
              "64x64: 82032 bytes, 2 CTAs", "128x32: 65648 bytes, 2 CTAs",
              "256x64: 131184 bytes, 1 CTAs of 256", "16x64 + 128x32: 69744 bytes, 2 CTAs"});
  // 102400 bytes an SM: the smaller KV tile of query tile 64 is the one of which two CTAs fit.
  CHECK(described(spec_of({86}, 128, 128)) ==
        Texts{"16x64: 69744 bytes, 1 CTAs", "32x32: 41072 bytes, 2 CTAs",
              "64x32: 49264 bytes, 2 CTAs", "128x64: 98416 bytes, 1 CTAs",
              "256x32: 98416 bytes, 1 CTAs of 256", "16x64 + 128x32: 69744 bytes, 1 CTAs"});
  // D = 64, query tile 16, KV 64: 112 registers: 4.6 CTAs, capped at 4. Query tile 64, KV 128: 168
  // registers, 3 CTAs, capped at 2. Query tile 128, KV 128: 64 + 128 + 8 + 56 = 256 registers.
  CHECK(described(spec_of({90, 'a'}, 64, 64)) ==
        Texts{"16x64: 34928 bytes, 4 CTAs", "32x64: 36976 bytes, 4 CTAs",
              "64x128: 73840 bytes, 2 CTAs", "128x64: 49264 bytes, 2 CTAs",
              "16x64 + 128x64: 49264 bytes, 2 CTAs",
              "warpgroups 192x128: 115504 bytes, 1 CTAs of 512"});
}

// An 8-bit cache, D = 128: ring 2*128*256 = 65536 bytes with a KV tile of 128, so query tile 16 has
// three CTAs as with 64 in 16 bits (64 + 16 + 32 + 56 = 168 registers). Query tile 32: KV 128 would
// need 184 registers, which leaves 2. Query tile 64: 216 registers, 2.4.
TEST_CASE("auto: 8-bit K and V take half the bytes, and so twice the tokens") {
  Spec spec = spec_of({90, 'a'}, 128, 128);
  for (const DType kv : {DType::kE4m3, DType::kE5m2}) {
    spec.dtype.kv = kv;
    CHECK(described(spec) == Texts{"16x128: 69744 bytes, 3 CTAs", "32x64: 41072 bytes, 3 CTAs",
                                   "64x128: 82032 bytes, 2 CTAs", "128x32: 49264 bytes, 2 CTAs",
                                   "256x32: 82032 bytes, 1 CTAs of 256",
                                   "16x128 + 128x32: 69744 bytes, 2 CTAs"});
  }
  // Rows of 96 bytes: a tail of 48 units is stored 64 wide.
  spec.head_dim = {96, 32};
  CHECK(shared_bytes(spec, {64, 32, 2}, 4) == kKeptBytes + 64 * 192 + 2 * 32 * (128 + 32));
}

// D = 80: a row is a slab of 64 columns and a tail of 16, 160 bytes; of 112, whose tail of 48 is
// stored 64 wide, 256.
TEST_CASE("rows of head dims that are no multiple of 64") {
  CHECK(shared_bytes(spec_of({90}, 80, 80), {64, 32, 2}, 4) ==
        kKeptBytes + 64 * 160 + 2 * 32 * 320);
  CHECK(shared_bytes(spec_of({90}, 112, 96), {64, 32, 2}, 4) ==
        kKeptBytes + 64 * 256 + 2 * 32 * (256 + 192));
  CHECK(shared_bytes(spec_of({90}, 16, 16), {64, 128, 2}, 4) ==
        kKeptBytes + 64 * 32 + 2 * 128 * 64);
}

// 102400 bytes are two CTAs of 51200 (Q 2048, ring 49152) only if one forgets the 1024 that the
// driver takes of each.
TEST_CASE("the driver's own shared memory counts") {
  Spec spec = spec_of({86}, 64, 128);
  spec.tile = FixedTile{16, 64};
  CHECK(described(spec) == Texts{"16x64: 51312 bytes, 1 CTAs"});
}

TEST_CASE("the task is a hint and changes no kernel") {
  Spec decode = plain_spec();
  decode.task = Task::kDecode;
  CHECK(kernel_set(decode).value() == kernel_set(plain_spec()).value());
}

TEST_CASE("shared memory of a class") {
  const Spec spec = spec_of({90, 'a'}, 128, 64);
  CHECK(shared_bytes(spec, {64, 32, 2}, 4) == kKeptBytes + 64 * 128 * 2 + 2 * 32 * (128 + 64) * 2);
  CHECK(shared_bytes(spec, {64, 32, 3}, 4) == kKeptBytes + 64 * 128 * 2 + 3 * 32 * (128 + 64) * 2);
  // The epilogue's scratch counts where it is larger: 4 * 16 * (128 + 8 + 2) * 4 = 35424 bytes, and
  // without shared rows 4 * 16 * (128 + 8) * 4 = 34816.
  CHECK(shared_bytes(spec_of({90}, 64, 128), {16, 64, 1}, 4) == kKeptBytes + 35328);
  CHECK(shared_bytes(spec_of({90}, 64, 128), {64, 32, 2}, 4) == kKeptBytes + 34816);
  CHECK(shared_bytes(spec_of({90}, 64, 128), {64, 64, 2}, 4) ==
        kKeptBytes + 64 * 64 * 2 + 2 * 64 * 192 * 2);
}

TEST_CASE("a literal tile is a set of one") {
  Spec spec = plain_spec();
  spec.tile = FixedTile{16, 128};
  CHECK(described(spec) == Texts{"16x128: 135280 bytes, 1 CTAs"});
  spec.tile = FixedTile{64, 32};
  CHECK(described(spec) == Texts{"64x32: 49264 bytes, 2 CTAs"});
  spec.tile = JointTile{{16, 64, 128}};
  CHECK(described(spec) == Texts{"16x64 + 64x64 + 128x32: 82032 bytes, 2 CTAs"});
  spec.tile = JointTile{{64, 128}};
  CHECK(described(spec) == Texts{"64x64 + 128x32: 82032 bytes, 2 CTAs"});
}

TEST_CASE("tiles that cannot be are refused with the numbers") {
  const Spec spec = plain_spec();
  // Four warps would need 256 + 64 + 32 + 56 registers, eight 196608 bytes.
  const Status registers = refused(spec_of({86}, 256, 256), FixedTile{128, 64});
  CHECK(registers.code == Code::kResourceLimit);
  CHECK(registers.path == "$.tile");
  CHECK(registers.cause ==
        "tile {\"q\": 128, \"kv\": 64} needs 196720 bytes of shared memory, sm_86 has 101376");
  const Status shared = refused(spec_of({86}, 128, 128), FixedTile{16, 128});
  CHECK(shared.code == Code::kResourceLimit);
  CHECK(shared.cause ==
        "tile {\"q\": 16, \"kv\": 128} needs 135280 bytes of shared memory, sm_86 has 101376");
  const Status split = refused(spec, FixedTile{16, 32});
  CHECK(split.code == Code::kSpecUnsupported);
  CHECK(split.cause.find("4 warps of 16 tokens each") != std::string::npos);
  CHECK(split.path == "$.tile");  // of the two together
  const Status query = refused(spec, FixedTile{17, 64});
  CHECK(query.path == "$.tile.q");
  CHECK(query.remedy == "allowed: 1, 16, 32, 64, 128, 256");
  const Status kv = refused(spec, FixedTile{64, 48});
  CHECK(kv.path == "$.tile.kv");
  CHECK(kv.remedy == "allowed: 32, 64, 128");
  CHECK(refused(spec, JointTile{{16}}).code == Code::kSpecUnsupported);
  CHECK(refused(spec, JointTile{{}}).code == Code::kSpecUnsupported);
  CHECK(refused(spec, JointTile{{128, 16}}).code == Code::kSpecUnsupported);
  CHECK(refused(spec, JointTile{{16, 16}}).code == Code::kSpecUnsupported);
  const Status joint = refused(spec, JointTile{{16, 48}});
  CHECK(joint.path == "$.tile.classes[1]");
  CHECK(joint.remedy == "allowed: 16, 32, 64, 128, 256");
  CHECK(refused(spec, JointTile{{1, 16}}).path == "$.tile.classes[0]");
  const Status decode = refused(spec, FixedTile{1, 48});
  CHECK(decode.path == "$.tile.kv");
  CHECK(decode.remedy == "allowed: 16, 32, 64, 128");
  CHECK(refused(spec_of({86}, 512, 512), FixedTile{1, 32}).cause ==
        "tile {\"q\": 1, \"kv\": 32} needs 132208 bytes of shared memory, sm_86 has 101376");
}

// 40 barriers of 8 bytes, four slots of 112 and of 8 bytes, and 16 bytes.
constexpr int kWgmmaOther = 320 + 448 + 32 + 16;

// 2 * 16384 * 2 bytes of queries, two stages of 128 rows of K and V, and the others; with qk 192
// there is room for one query tile only.
TEST_CASE("a tile may name the warpgroup kernels") {
  const auto choice_of = [](const Spec& spec, int q, int kv) {
    Spec named = spec;
    named.tile = FixedTile{q, kv, TileFamily::kWgmma};
    const auto kernels = kernel_set(named);
    INFO(kernels.status().to_string());
    REQUIRE(kernels.ok());
    REQUIRE(kernels->size() == 1);
    return kernels->front();
  };
  CHECK(choice_of(spec_of({90, 'a'}, 128, 128), 128, 128) ==
        KernelChoice{"attention_wgmma", {{128, 128, 2}}, 384, 65536 + 131072 + kWgmmaOther, 1});
  CHECK(choice_of(spec_of({90, 'a'}, 192, 128), 128, 128).shared_bytes ==
        49152 + 163840 + kWgmmaOther);
  Spec paged = spec_of({90, 'a'}, 64, 128);
  paged.layout = {KvLayout::kPaged, 16};
  const KernelChoice choice = choice_of(paged, 128, 96);
  CHECK(step_down(paged, choice)->classes == std::vector<TileClass>{{128, 64, 2}});
  CHECK_FALSE(step_down(paged, choice_of(paged, 128, 64)).ok());
  CHECK(choice_of(spec_of({90, 'a'}, 64, 64), 192, 128) ==
        KernelChoice{"attention_wgmma", {{192, 128, 2}}, 512, 49152 + 65536 + kWgmmaOther, 1});
  paged.layout.page_size = 5;  // gathered
  CHECK(choice_of(paged, 128, 128).shared_bytes == 2 * 16384 + 65536 + 32768 + kWgmmaOther);
  CHECK(choice_of(spec_of({90, 'a'}, 96, 96), 128, 96).shared_bytes ==
        2 * 32768 + 2 * 2 * 96 * 256 + kWgmmaOther);
  const Spec wide = spec_of({90, 'a'}, 256, 256);
  const KernelChoice widest = choice_of(wide, 128, 80);
  CHECK(widest.shared_bytes == 65536 + 2 * 2 * 80 * 512 + kWgmmaOther);
  Spec masked = spec_of({90, 'a'}, 128, 128);
  masked.group_size = 1;
  masked.variant.mask.custom = true;
  CHECK(choice_of(masked, 128, 128).shared_bytes == 65536 + 131072 + 2 * 128 * 5 * 4 + kWgmmaOther);
  Spec rotated = spec_of({90, 'a'}, 128, 128);
  rotated.variant.key_transform = "x.scale(2.0f);";
  CHECK(choice_of(rotated, 128, 128).threads == 512);
  CHECK(step_down(wide, widest)->classes == std::vector<TileClass>{{128, 64, 2}});
}

TEST_CASE("what the warpgroup kernels do not do is refused") {
  const auto refusal = [](const Spec& spec, int q = 128, int kv = 128) {
    const Status status = refused(spec, FixedTile{q, kv, TileFamily::kWgmma});
    CHECK(status.code == Code::kSpecUnsupported);
    return status.path + ": " + status.cause;
  };
  const Spec spec = spec_of({90, 'a'}, 128, 128);
  const std::string lacks = "$.tile.family: attention_wgmma of this version does not do ";
  CHECK(refused(spec, FixedTile{192, 128, TileFamily::kWgmma}).code == Code::kResourceLimit);
  CHECK(refusal(spec, 64).find("$.tile.q: query tile 64 is not supported") == 0);
  CHECK(refusal(spec, 128, 32).find("$.tile.kv: KV tile 32 is not supported") == 0);
  CHECK(refusal(spec_of({90}, 128, 128)).find("needs sm_90a, and the target is sm_90") !=
        std::string::npos);
  CHECK(refusal(spec, 128, 80).find("$.tile.kv: KV tile 80 is not supported") == 0);
  CHECK(refused(spec_of({90, 'a'}, 256, 256), FixedTile{128, 96, TileFamily::kWgmma}).remedy ==
        "allowed: 64, 80");
  CHECK(refusal(spec_of({90, 'a'}, 128, 112)) == lacks + "head_dim 128, 112");
  CHECK(refusal(spec_of({90, 'a'}, 80, 128)) == lacks + "head_dim 80, 128");
  Spec other = spec;
  other.dtype.kv = DType::kE4m3;
  CHECK(refusal(other) == lacks + "dtype.kv e4m3");
  other = spec_of({90, 'a'}, 64, 64);
  other.variant.key_transform = "x.scale(2.0f);";
  CHECK(refused(other, FixedTile{192, 64, TileFamily::kWgmma}).code == Code::kResourceLimit);
  other.head_dim = {256, 256};
  CHECK(refusal(other, 128, 64) == lacks + "row functors at head_dim.vo 256");
  other = spec;
  other.layout = {KvLayout::kBsr, 0, 1, 1};
  other.variant.value_transform = "x.scale(2.0f);";
  CHECK(refusal(other) == lacks + "row functors with layout \"bsr\"");
  other.variant.value_transform.clear();
  other.variant.tile_mask = "return loom::TileMask::kPartial;";
  CHECK(refusal(other) == lacks + "variant.tile_mask with layout \"bsr\"");
}

// D = 256: 256 registers for O alone in a 128-row tile of four warps, 128 in one of eight.
TEST_CASE("eight warps where four do not fit") {
  Spec spec = spec_of({90, 'a'}, 256, 256);
  CHECK(described(spec) == Texts{"16x64: 139376 bytes, 1 CTAs", "32x32: 82032 bytes, 2 CTAs",
                                 "64x32: 98416 bytes, 2 CTAs",
                                 "128x64: 196720 bytes, 1 CTAs of 256",
                                 "16x64 + 64x32: 139376 bytes, 1 CTAs",
                                 "warpgroups 128x80: 230192 bytes, 1 CTAs of 384"});
  // Eight warps on 16 rows need a KV tile of 128: 270336 bytes with its queries.
  const Status joint = refused(spec, JointTile{{16, 128}});
  CHECK(joint.code == Code::kResourceLimit);
  CHECK(joint.cause ==
        "tile {\"q\": 16, \"kv\": 128} needs 270448 bytes of shared memory, sm_90a has 232448");
  spec = plain_spec();
  spec.tile = FixedTile{128, 128};  // four warps: 128 + 128 + 8 + 56 = 320 registers
  CHECK(described(spec) == Texts{"128x128: 163952 bytes, 1 CTAs of 256"});
}

// Query 256 bytes and ring 2*64*512 = 65536, or of 8-bit K and V with twice the tokens; head dim
// 512: query 1024, ring 2*16*2048. Three CTAs at most.
TEST_CASE("query tile 1: where a group is one head, and for head dims that nothing else holds") {
  Spec spec = spec_of({90, 'a'}, 128, 128);
  spec.group_size = 1;
  CHECK(described(spec) == Texts{"1x64: 65904 bytes, 3 CTAs", "16x64: 69744 bytes, 3 CTAs",
                                 "32x64: 73840 bytes, 3 CTAs", "64x64: 82032 bytes, 2 CTAs",
                                 "128x64: 98416 bytes, 2 CTAs",
                                 "16x64 + 128x32: 69744 bytes, 2 CTAs",
                                 "warpgroups 128x128: 197424 bytes, 1 CTAs of 384"});
  spec.dtype.kv = DType::kE4m3;
  CHECK(described(spec).front() == "1x128: 65904 bytes, 3 CTAs");
  spec = spec_of({90, 'a'}, 512, 512);
  CHECK(described(spec) == Texts{"1x16: 66672 bytes, 3 CTAs"});
  spec.target = Target{86};
  CHECK(described(spec) == Texts{"1x16: 66672 bytes, 1 CTAs"});
  spec.tile = FixedTile{1, 16};
  CHECK(described(spec) == Texts{"1x16: 66672 bytes, 1 CTAs"});
  // Its one row asks for no registers that a smaller KV tile would free: a CTA less does.
  spec.target = Target{90, 'a'};
  const Result<KernelChoice> fewer = step_down(spec, kernel_set(spec)->front());
  REQUIRE(fewer.ok());
  CHECK(describe(*fewer) == "1x16: 66672 bytes, 2 CTAs");
  CHECK(step_down(spec, step_down(spec, *fewer).value()).status().code == Code::kResourceLimit);
  // The epilogue counts where it is larger: 16 groups of 240 + 8 + 2 words.
  spec = spec_of({90, 'a'}, 16, 240);
  spec.tile = FixedTile{1, 16};
  CHECK(described(spec) == Texts{"1x16: 17648 bytes, 3 CTAs"});
  spec.dtype.kv = DType::kE5m2;
  CHECK(described(spec) == Texts{"1x16: 16112 bytes, 3 CTAs"});
}

TEST_CASE("merge is one kernel without classes") {
  Spec spec = plain_spec();
  spec.kernel = KernelKind::kMerge;
  const Result<std::vector<KernelChoice>> kernels = kernel_set(spec);
  REQUIRE(kernels.ok());
  CHECK(*kernels == std::vector<KernelChoice>{{"merge", {}, 128, 0, 1}});
  CHECK(step_down(spec, kernels->front()).status().code == Code::kResourceLimit);
}

TEST_CASE("a spilled kernel steps down in its largest class") {
  const Spec spec = plain_spec();
  const std::vector<KernelChoice> kernels = kernel_set(spec).value();
  const Result<KernelChoice> smaller = step_down(spec, kernels[2]);
  REQUIRE(smaller.ok());
  CHECK(describe(*smaller) == "64x32: 49264 bytes, 2 CTAs");
  const Result<KernelChoice> smallest = step_down(spec, *smaller);
  REQUIRE(smallest.ok());
  CHECK(describe(*smallest) == "64x16: 34928 bytes, 2 CTAs");
  CHECK(step_down(spec, *smallest).status().code == Code::kResourceLimit);
  CHECK(step_down(spec, kernels[0]).status().code ==
        Code::kResourceLimit);  // 16x64: the four warps need 64 tokens
  const Result<KernelChoice> joint = step_down(spec, kernels[4]);
  REQUIRE(joint.ok());
  CHECK(describe(*joint) == "16x64 + 128x16: 69744 bytes, 2 CTAs");
  // From one CTA an SM to one, though three of the smaller would fit: a third of the registers
  // would spill again.
  Spec fixed = plain_spec();
  fixed.tile = FixedTile{16, 128};
  const Result<KernelChoice> stepped = step_down(fixed, kernel_set(fixed)->front());
  REQUIRE(stepped.ok());
  CHECK(describe(*stepped) == "16x64: 69744 bytes, 1 CTAs");
}

}  // namespace
}  // namespace attnloom
