// SPDX-License-Identifier: Apache-2.0
// Bulk copies: plain ones, and tiles of tensors.
#include "hopper_kernel.h"
#include "sim/tensor_map.h"

namespace attnloom::sim {
namespace {

std::vector<std::uint32_t> iota(std::size_t n) {
  std::vector<std::uint32_t> v(n);
  for (std::size_t k = 0; k < n; ++k) v[k] = static_cast<std::uint32_t>(k + 1);
  return v;
}

HopperSetup setup() {
  HopperSetup s;
  s.in = iota(256);
  s.shared_bytes = 2048;
  return s;
}

const std::string kArrive128 = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [1024], 128; ";
const std::string kLoad =
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [256], [%in+16], 128, "
    "[1024]; ";
const std::string kRead = "shl.b32 %r1, %t, 2; ld.shared.u32 %d, [%r1+256]; " + kStoreD;
const std::string kBegin = init_barrier(1024, 1) + kInitDone;

TEST_CASE("A bulk load lands when its barrier says so") {
  const std::string good = kBegin + kArrive128 + kLoad + wait_barrier(1024, "0") + kRead;
  CHECK(first_finding(good, setup()) == "");
  RunResult r = run_hopper(good, setup());
  for (std::uint32_t t = 0; t < 32; ++t) CHECK(r.out[t] == t + 5);
  CHECK(r.report.counters.global_load_bytes == 128);
  CHECK(r.report.counters.global_load_sectors == 5);
  RunResult early =
      run_hopper(kBegin + kArrive128 + kLoad + kRead + wait_barrier(1024, "0"), setup());
  CHECK(early.count("in-flight-read") == 32);
  CHECK(early.out[3] == 0xffffffffu);
  CHECK(run_hopper(kBegin + kArrive128 + kLoad, setup()).count("unfinished-copy") == 1);
  CHECK(run_hopper(kBegin + kLoad + kArrive128 + wait_barrier(1024, "0") + kRead, setup())
            .report.findings.empty());
  CHECK(run_hopper(
            init_barrier(1024, 1) + "bar.sync 0; " + kArrive128 + kLoad + wait_barrier(1024, "0"),
            setup())
            .count("missing-mbarrier-fence") == 1);
  CHECK(run_hopper(init_barrier(1024, 1) + "fence.proxy.async; bar.sync 0; " + kArrive128 + kLoad +
                       wait_barrier(1024, "0"),
                   setup())
            .report.findings.empty());
}

TEST_CASE("Waiting for a later load does not cover an earlier one of another barrier") {
  const std::string body = kBegin + init_barrier(1032, 1) + kInitDone + kArrive128 + kLoad +
                           "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [1032], 16; "
                           "@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
                           "[512], [%in], 16, [1032]; ";
  HopperSetup s = setup();
  CHECK(first_finding(body + wait_barrier(1032, "0") + wait_barrier(1024, "0") + kRead, s) == "");
  for (; s.options.seed < 20; ++s.options.seed) {
    RunResult r = run_hopper(body + wait_barrier(1032, "0") + kRead + wait_barrier(1024, "0"), s);
    CHECK(r.count("race-shared") + r.count("in-flight-read") >= 32);
  }
}

TEST_CASE("Sizes and addresses of bulk copies") {
  auto load = [](const std::string& operands) {
    return run_hopper(kBegin +
                          "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                          "bytes " +
                          operands + ", [1024]; ",
                      setup());
  };
  CHECK(load("[256], [%in], 24").count("bad-copy-size") == 1);
  CHECK(load("[264], [%in], 16").count("misaligned") == 1);
  CHECK(load("[256], [%in+8], 16").count("misaligned") == 1);
  CHECK(load("[2048], [%in], 16").count("out-of-bounds") == 1);
  CHECK(load("[256], [%in+1024], 16").count("out-of-bounds") == 1);
}

const std::string kFill = "shl.b32 %r1, %t, 2; add.u32 %r2, %t, 40; st.shared.u32 [%r1], %r2; ";
const std::string kStore =
    "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%out], [0], 128; "
    "@%p0 cp.async.bulk.commit_group; ";

TEST_CASE("A bulk store reads and writes when it is waited for") {
  const std::string fence = "fence.proxy.async.shared::cta; bar.warp.sync -1; ";
  const std::string wait = "@%p0 cp.async.bulk.wait_group 0; ",
                    wait_read = "@%p0 cp.async.bulk.wait_group.read 0; ",
                    overwrite = "bar.warp.sync -1; st.shared.u32 [%r1], 0; ";
  RunResult good = run_hopper(kFill + fence + kStore + wait, setup());
  CHECK(good.report.findings.empty());
  CHECK(good.out[31] == 71);
  CHECK(good.report.counters.global_store_bytes == 128);
  CHECK(run_hopper(kFill + fence + kStore, setup()).count("unfinished-copy") == 1);
  CHECK(run_hopper(kFill + "bar.warp.sync -1; " + kStore + wait, setup())
            .count("missing-proxy-fence") == 32);
  // A fence covers what was written before it.
  CHECK(run_hopper("fence.proxy.async; " + kFill + "bar.warp.sync -1; " + kStore + wait, setup())
            .count("missing-proxy-fence") == 32);
  RunResult kept = run_hopper(kFill + fence + kStore + wait_read + overwrite + wait, setup());
  CHECK(kept.report.findings.empty());
  CHECK(kept.out[31] == 71);
  RunResult left = run_hopper(kFill + fence + kStore + wait_read, setup());
  CHECK(left.report.findings.empty());
  CHECK(left.out[31] == 71);
  RunResult lost = run_hopper(kFill + fence + kStore + overwrite + wait, setup());
  CHECK(lost.count("race-shared") == 32);
  CHECK(lost.out[31] == 0);
  CHECK(run_hopper(kFill + fence + kStore + wait_read +
                       "@%p0 ld.global.u32 %r5, [%out]; @%p0 cp.async.bulk.wait_group 0; ",
                   setup())
            .count("race-global") == 1);
}

// A tensor of 16-bit elements, each its own number; `box` is loaded at `at` and written out as it
// lies in shared memory.
struct TileCase {
  int rank;
  std::array<std::uint64_t, 5> dims;
  std::array<std::uint32_t, 5> box;
  std::array<int, 5> at;
  TensorSwizzle swizzle;
};

std::uint64_t count(const std::array<std::uint64_t, 5>& dims, int rank) {
  std::uint64_t n = 1;
  for (int k = 0; k < rank; ++k) n *= dims[static_cast<std::size_t>(k)];
  return n;
}

// Where element `index` of the tile lies: pieces of 16 bytes change places by the line of 128
// bytes.
std::uint32_t place(std::uint32_t index, TensorSwizzle swizzle) {
  std::uint32_t byte = 2 * index, piece = byte / 16 % 8, line = byte / 128 % 8;
  if (swizzle == TensorSwizzle::k128) piece ^= line;
  if (swizzle == TensorSwizzle::k64) piece ^= line % 4;
  if (swizzle == TensorSwizzle::k32) piece ^= line % 2;
  return (byte / 128 * 128 + piece * 16 + byte % 16) / 2;
}

void check_tile(const TileCase& c) {
  HopperSetup s;
  TensorMapShape shape;
  shape.rank = c.rank;
  shape.dims = c.dims;
  shape.box = c.box;
  shape.swizzle = c.swizzle;
  std::uint64_t stride = 2;
  std::uint32_t elements = 1;
  for (std::size_t k = 0; k < static_cast<std::size_t>(c.rank); ++k) {
    stride *= c.dims[k];
    elements *= c.box[k];
    if (k < 4) shape.stride_bytes[k] = stride;
  }
  s.map = shape;
  std::vector<std::uint16_t> tensor(count(c.dims, c.rank));
  for (std::size_t k = 0; k < tensor.size(); ++k) tensor[k] = static_cast<std::uint16_t>(k + 1);
  s.in.resize(tensor.size() / 2);
  std::memcpy(s.in.data(), tensor.data(), 2 * tensor.size());
  s.out_words = elements / 2;
  s.shared_bytes = 1024 + 16384;
  std::string coordinates, bytes = std::to_string(2 * elements);
  for (std::size_t k = 0; k < static_cast<std::size_t>(c.rank); ++k)
    coordinates += (k == 0 ? "" : ", ") + std::to_string(c.at[k]);
  const std::string body =
      init_barrier(0, 1) + kInitDone + "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [0], " +
      bytes + "; @%p0 cp.async.bulk.tensor." + std::to_string(c.rank) +
      "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [1024], [%map, {" + coordinates +
      "}], [0]; " + wait_barrier(0, "0") + "shl.b32 %r1, %t, 2; COPY: setp.ge.u32 %p1, %r1, " +
      bytes +
      "; @%p1 bra END; ld.shared.u32 %d, [%r1+1024]; cvt.u64.u32 %x1, %r1; add.u64 %x1, %x1, %out; "
      "st.global.u32 [%x1], %d; add.u32 %r1, %r1, 128; bra COPY; END: ";
  RunResult r = run_hopper(body, s);
  for (const Finding& f : r.report.findings) UNSCOPED_INFO(f.kind << ": " << f.detail);
  CHECK(r.report.findings.empty());
  std::vector<std::uint16_t> got(elements), wanted(elements);
  std::memcpy(got.data(), r.out.data(), 2 * got.size());
  for (std::uint32_t e = 0; e < elements; ++e) {
    std::uint32_t rest = e;
    std::uint64_t index = 0, step = 1;
    bool inside = true;
    for (std::size_t k = 0; k < static_cast<std::size_t>(c.rank); ++k) {
      std::int64_t x = c.at[k] + static_cast<std::int64_t>(rest % c.box[k]);
      rest /= c.box[k];
      inside = inside && x >= 0 && x < static_cast<std::int64_t>(c.dims[k]);
      index += static_cast<std::uint64_t>(x) * step;
      step *= c.dims[k];
    }
    wanted[place(e, c.swizzle)] = inside ? tensor[index] : std::uint16_t{0};
  }
  CHECK(got == wanted);
}

TEST_CASE("Tiles of one to five dimensions, with every swizzle, zeros beyond the tensor") {
  using S = TensorSwizzle;
  check_tile({1, {96}, {64}, {16}, S::kNone});
  check_tile({1, {96}, {64}, {-8}, S::kNone});
  check_tile({2, {64, 40}, {64, 32}, {0, 16}, S::k128});
  check_tile({2, {64, 40}, {32, 32}, {32, -3}, S::k64});
  check_tile({2, {64, 40}, {16, 24}, {56, 3}, S::k32});
  check_tile({2, {72, 40}, {64, 16}, {13, 30}, S::kNone});
  check_tile({3, {64, 10, 3}, {64, 8, 2}, {0, 5, 2}, S::k128});
  check_tile({4, {64, 6, 3, 2}, {64, 4, 2, 2}, {0, 1, -1, 1}, S::k128});
  check_tile({5, {32, 3, 4, 2, 2}, {32, 2, 3, 1, 2}, {0, 2, 0, 1, 0}, S::k64});
}

TEST_CASE("A tile is stored up to the tensor's edge") {
  HopperSetup s;
  TensorMapShape shape;
  shape.rank = 2;
  shape.dims = {64, 6};
  shape.stride_bytes = {128};
  shape.box = {64, 8};
  shape.swizzle = TensorSwizzle::k128;
  s.map = shape;
  s.map_of_out = true;
  s.out_words = 32 * 6;
  s.out_written = true;
  // Word k of the tile, as it lies in shared memory, is k.
  RunResult r = run_hopper(
      "mov.u32 %r1, %t; FILL: shl.b32 %r2, %r1, 2; st.shared.u32 [%r2], %r1; "
      "add.u32 %r1, %r1, 32; setp.lt.u32 %p1, %r1, 256; @%p1 bra FILL; "
      "fence.proxy.async; bar.warp.sync -1; "
      "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {0, 2}], [0]; "
      "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0; ",
      s);
  CHECK(r.report.findings.empty());
  CHECK(r.report.counters.global_store_bytes == 4 * 128);
  for (std::uint32_t row = 0; row < 6; ++row) {
    for (std::uint32_t w = 0; w < 32; ++w) {
      std::uint32_t in_tile = row - 2, lies = in_tile * 32 + ((w / 4) ^ (in_tile % 8)) * 4 + w % 4;
      CHECK(r.out[row * 32 + w] == (row < 2 ? 0 : lies));
    }
  }
}

TEST_CASE("What is no tensor map, and tiles that lie wrong") {
  HopperSetup s = setup();
  const std::string load =
      kBegin +
      "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
      "bytes ";
  CHECK(run_hopper(load + "[256], [%map, {0, 0}], [1024]; ", s).count("bad-tensor-map") == 1);
  TensorMapShape shape;
  shape.rank = 1;
  shape.dims = {512};
  shape.box = {64};
  s.map = shape;
  CHECK(run_hopper(load + "[256], [%map, {0, 0}], [1024]; ", s).count("bad-tensor-map") == 1);
  shape.rank = 2;
  shape.dims = {64, 8};
  shape.stride_bytes = {128};
  shape.box = {64, 8};
  s.map = shape;
  CHECK(run_hopper(load + "[272], [%map, {0, 0}], [1024]; ", s).count("misaligned") == 1);
  CHECK(run_hopper(load + "[256], [%map+32, {0, 0}], [1024]; ", s).count("misaligned") == 1);
  CHECK(run_hopper(load + "[1152], [%map, {0, 0}], [1024]; ", s).count("out-of-bounds") == 1);
}

TEST_CASE("Tensor maps that no device encodes are refused with the field's name") {
  TensorMapShape good;
  good.address = 1 << 20;
  good.rank = 2;
  good.dims = {64, 8};
  good.stride_bytes = {128};
  good.box = {64, 8};
  good.swizzle = TensorSwizzle::k128;
  REQUIRE(encode_tensor_map(good).ok());
  auto path = [&](auto change) {
    TensorMapShape shape = good;
    change(shape);
    return encode_tensor_map(shape).status().path;
  };
  CHECK(path([](TensorMapShape& s) { s.address += 8; }) == "address");
  CHECK(path([](TensorMapShape& s) { s.rank = 6; }) == "rank");
  CHECK(path([](TensorMapShape& s) { s.element_bytes = 3; }) == "element_bytes");
  CHECK(path([](TensorMapShape& s) { s.dims[1] = 0; }) == "dims");
  CHECK(path([](TensorMapShape& s) { s.stride_bytes[0] = 120; }) == "stride_bytes");
  CHECK(path([](TensorMapShape& s) { s.box[1] = 257; }) == "box");
  CHECK(path([](TensorMapShape& s) { s.box[0] = 4; }) == "box");
  CHECK(path([](TensorMapShape& s) { s.swizzle = TensorSwizzle::k64; }) == "swizzle");
}

}  // namespace
}  // namespace attnloom::sim
