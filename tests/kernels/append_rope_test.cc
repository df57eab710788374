// SPDX-License-Identifier: Apache-2.0
// append_rope through the engine: the angles against float64, also far from the start, queries in
// place, and that nothing beside the rotated elements changes.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/append_rig.h"
#include "kernels/fp8_format.h"
#include "kernels/kernel_rig.h"
#include "reference/number_format.h"

namespace attnloom::testing {
namespace {

Engine& engine() {
  static const std::unique_ptr<Engine> shared = make_test_engine();
  return *shared;
}

// Element i of a rotated row, from the definition, and the largest part of it (for the bound).
struct Rotated {
  double value = 0;
  double size = 0;
};
template <class Read>
Rotated rotated(const AppendCase& given, std::int64_t i, std::int64_t position, Read read) {
  const std::int64_t r = given.rope->rotary_dim;
  if (i >= r) return {read(i), 0};
  const bool neox = given.rope->style == RopeStyle::kNeox;
  const std::int64_t pair = neox ? i % (r / 2) : i / 2;
  const std::int64_t first = neox ? pair : 2 * pair;
  const std::int64_t second = neox ? pair + r / 2 : 2 * pair + 1;
  const double theta = given.rope_theta == 0 ? 1e4 : given.rope_theta;
  const double scale = given.rope_scale == 0 ? 1.0 : given.rope_scale;
  const double angle = static_cast<double>(position) / scale *
                       std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(r));
  const double x = read(first), y = read(second);
  const double c = std::cos(angle), s = std::sin(angle);
  return {i == first ? x * c - y * s : x * s + y * c, std::hypot(x, y)};
}

// 2^-19 for sin, cos and the sum in f32; then one rounding to 16 bits.
bool is_close(double got, const Rotated& want, DType dtype) {
  const double unit = dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
  return std::abs(got - want.value) <= unit * std::abs(want.value) + 0x1p-19 * want.size + 0x1p-25;
}

// 8 bits: what a number within the error of f32 may be rounded to.
bool is_close_code(unsigned code, const Rotated& want, double scale, DType dtype) {
  const Fp8Format& format = fp8_format(dtype);
  const double slack = 0x1p-19 * want.size / scale;
  return code == fp8_nearest(want.value / scale - slack, format) ||
         code == fp8_nearest(want.value / scale + slack, format);
}

void check_keys(const AppendCase& given, const AppendOutcome& got) {
  const NewRows rows = new_rows(given);
  AppendCase as_copied = given;
  CachePool wanted = make_pool(given.pool, given.order, bytes_of(given.kv));
  wanted.bytes = wanted_pool(as_copied);
  CachePool pool = wanted;
  pool.bytes = got.pool;
  int wrong = 0;
  for (std::size_t token = 0; token < given.positions.size(); ++token) {
    const TokenPlace place = place_of(given, token);
    if (place.page < 0) continue;
    for (std::int64_t head = 0; head < given.pool.heads; ++head) {
      unsigned char* at = pool.at(false, place.page, place.slot, head);
      unsigned char* copied = wanted.at(false, place.page, place.slot, head);
      const double scale =
          given.kv_scale == KvScale::kNone
              ? 1.0
              : scales_of(
                    given,
                    false)[static_cast<std::size_t>(given.kv_scale == KvScale::kHead ? head : 0)];
      for (std::int64_t i = 0; i < given.rope->rotary_dim; ++i) {
        const Rotated want = rotated(given, i, given.positions[token], [&](std::int64_t j) {
          return reference::from_bits(rows.key(given, static_cast<std::int64_t>(token), head, j),
                                      given.q);
        });
        bool close = false;
        if (bytes_of(given.kv) == 2) {
          std::uint16_t bits = 0;
          std::memcpy(&bits, at + 2 * i, 2);
          close = is_close(reference::from_bits(bits, given.kv), want, given.kv);
        } else {
          close = is_close_code(at[i], want, scale, given.kv);
        }
        if (!close) ++wrong;
      }
      const std::size_t bytes =
          static_cast<std::size_t>(given.rope->rotary_dim) * bytes_of(given.kv);
      std::memcpy(copied, at, bytes);  // judged; the rest must be as without rotation
    }
  }
  CHECK(wrong == 0);
  CHECK(wanted.bytes == pool.bytes);
}

void check_queries(const AppendCase& given, const AppendOutcome& got) {
  const NewRows rows = new_rows(given);
  NewRows after = rows;
  after.bits = got.rows;
  int wrong = 0;
  for (std::size_t token = 0; token < given.positions.size(); ++token) {
    if (place_of(given, token).page < 0) continue;
    for (std::int64_t head = 0; head < given.q_heads; ++head) {
      for (std::int64_t i = 0; i < given.pool.qk; ++i) {
        const auto t = static_cast<std::int64_t>(token);
        const Rotated want = rotated(given, i, given.positions[token], [&](std::int64_t j) {
          return reference::from_bits(rows.query(given, t, head, j), given.q);
        });
        const std::uint16_t bits = after.query(given, t, head, i);
        if (!is_close(reference::from_bits(bits, given.q), want, given.q)) ++wrong;
        after.bits[static_cast<std::size_t>(rows.q_begin + t * rows.q_token + head * given.pool.qk +
                                            i)] = rows.query(given, t, head, i);
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(after.bits == rows.bits);  // keys, values and the queries of unused rows
}

void check_run(const AppendCase& given) {
  const AppendOutcome got = run(engine(), given);
  INFO(got.status.to_string());
  REQUIRE(got.status.ok());
  CHECK(got.finding == "");
  check_keys(given, got);
  check_queries(given, got);
}

AppendCase two_requests(RopeStyle style, int rotary_dim) {
  AppendCase given;
  given.pool = {.pages = 6, .page_size = 3, .heads = 2, .qk = 128, .vo = 128};
  given.rope = Rope{style, rotary_dim};
  given.page_indptr = {0, 3, 5};
  given.page_indices = {4, 0, 5, 1, 2};
  given.batch_indices = {0, 0, -1, 1, 1, 1};
  given.positions = {0, 5, 4, 1, 3, 6};  // the last is behind its pages
  given.q_heads = 3;
  return given;
}

}  // namespace

TEST_CASE("keys and queries turn by their positions, in both styles", "[append_rope]") {
  for (const RopeStyle style : {RopeStyle::kNeox, RopeStyle::kInterleaved}) {
    for (const int rotary_dim : {16, 48, 128}) {
      AppendCase given = two_requests(style, rotary_dim);
      given.packed = rotary_dim != 16;
      given.order = rotary_dim == 48 ? PoolOrder::kHnd : PoolOrder::kInterleaved;
      given.q = given.kv = rotary_dim == 128 ? DType::kF16 : DType::kBf16;
      INFO(json_name(style) << " " << rotary_dim);
      check_run(given);
    }
  }
}

TEST_CASE("scale and theta are those of the call", "[append_rope]") {
  AppendCase given = two_requests(RopeStyle::kNeox, 96);
  given.pool.qk = given.pool.vo = 96;
  given.rope_scale = 8.0f;
  given.rope_theta = 500000.0f;
  given.q = given.kv = DType::kF16;
  check_run(given);
  given.rope_scale = 0.01f;  // more than a turn a position
  check_run(given);
}

TEST_CASE("angles are as exact a million tokens on", "[append_rope]") {
  AppendCase given = two_requests(RopeStyle::kInterleaved, 64);
  given.pool.qk = given.pool.vo = 64;
  given.pool.page_size = 16;
  given.q = given.kv = DType::kF16;
  given.page_indptr = {0, 65536};
  for (std::int32_t i = 0; i < 65536; ++i) given.page_indices.push_back(i % 5);
  given.batch_indices = {0, 0, 0};
  given.positions = {1'000'003, 131'071, 77'777};
  check_run(given);
}

TEST_CASE("a rotated key is rounded once into an 8-bit cache", "[append_rope]") {
  for (const DType kv : {DType::kE4m3, DType::kE5m2}) {
    AppendCase given = two_requests(RopeStyle::kNeox, 32);
    given.pool.qk = 64;
    given.pool.vo = 256;
    given.kv = kv;
    given.kv_scale = kv == DType::kE4m3 ? KvScale::kHead : KvScale::kNone;
    given.q_heads = 0;
    check_run(given);
  }
}

}  // namespace attnloom::testing
