// SPDX-License-Identifier: Apache-2.0
// The 8-bit float ops on the simulated device, for a chip that converts in one instruction and for
// one that does not: all 256 codes, and rounding at every step between two of them.
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/device_tensors.h"
#include "kernels/fp8_format.h"
#include "kernels/kernel_rig.h"
#include "reference/number_format.h"
#include "render/embedded.h"
#include "render/headers.h"

namespace attnloom::testing {
namespace {

struct Chip {
  const char* target;
  const char* profile;
};
constexpr std::array kChips = {Chip{"sm_80", "a100"}, Chip{"sm_90a", "h200"}};

Artifact compile(const Fp8Format& format, const Chip& chip) {
  Source source;
  source.text =
      "#include \"loom/ops_fp8.cuh\"\nusing Element = loom::" + std::string(format.element) + R"(;
struct Args { const float* in; unsigned* packed; unsigned* unpacked; };
extern "C" __global__ void convert(const __grid_constant__ Args args) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  args.packed[i] = loom::pack2(args.in[2 * i], args.in[2 * i + 1], Element{});
  args.unpacked[i] = loom::unpack2_f16(i & 0xffff, Element{});
}
)";
  const auto headers = reachable_headers(source.text, embedded_files());
  REQUIRE(headers.ok());
  source.headers = *headers;
  source.target = chip.target;
  source.options = {"--gpu-architecture=" + source.target, "--no-source-include", "-std=c++17",
                    "--modify-stack-limit=false", "--ptxas-options=-v"};
  source.entries = {"convert"};
  const auto artifact = make_test_toolchain()->compile(source);
  INFO(artifact.status().to_string());
  REQUIRE(artifact.ok());
  return *artifact;
}

struct Converted {
  std::vector<unsigned> packed;    // of floats 2i, 2i + 1
  std::vector<unsigned> unpacked;  // of the pair of codes i
};

constexpr unsigned kBlock = 128;

Converted convert(const Fp8Format& format, const Chip& chip, std::vector<float> in,
                  std::size_t pairs) {
  in.resize(2 * pairs);
  SimBackend device(*sim::find_profile(chip.profile), {});
  const Artifact artifact = compile(format, chip);
  const auto kernel = device.load(artifact, "convert", 0);
  INFO(kernel.status().to_string());
  REQUIRE(kernel.ok());
  DeviceTensors tensors(device);
  const struct {
    DeviceAddress in, packed, unpacked;
  } args = {tensors.put(in, "in"), tensors.room(pairs * 4, "packed"),
            tensors.room(pairs * 4, "unpacked")};
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(pairs) / kBlock;
  shape.block = kBlock;
  REQUIRE(device.launch(**kernel, shape, std::as_bytes(std::span(&args, 1)), nullptr).ok());
  REQUIRE(device.synchronize(nullptr).ok());
  CHECK(tensors.finding() == "");
  return {tensors.get<unsigned>(args.packed, pairs), tensors.get<unsigned>(args.unpacked, pairs)};
}

double f16_value(unsigned bits) {
  return reference::from_bits(static_cast<std::uint16_t>(bits), DType::kF16);
}

// What the code must become, compared as f16 so that both zeros differ.
void check_code(unsigned code, unsigned half, const Fp8Format& format) {
  const double value = f16_value(half);
  const unsigned magnitude = code & 0x7fu;
  INFO(format.element << " " << code << " became " << half);
  if (magnitude > format.largest) {
    const bool infinite = format.mantissa_bits == 2 && magnitude == 0x7c;
    CHECK((infinite ? std::isinf(value) : std::isnan(value)));
    return;
  }
  CHECK(std::abs(value) == fp8_magnitude(magnitude, format));
  CHECK(std::signbit(value) == ((code & 0x80u) != 0));
}

struct Rounding {
  float value;
  unsigned code;
};

// Every number of the format; half way to the next, where the even one wins; a float's least step
// to both sides of that. Then what saturates.
std::vector<Rounding> roundings(const Fp8Format& format) {
  std::vector<Rounding> list;
  for (unsigned code = 0; code <= format.largest; ++code) {
    const bool last = code == format.largest;
    const auto value = static_cast<float>(fp8_magnitude(code, format));
    const auto half =
        static_cast<float>((fp8_magnitude(code, format) + fp8_magnitude(code + 1, format)) / 2);
    list.push_back({value, code});
    list.push_back({std::nextafter(half, 0.0f), code});
    list.push_back({half, last || code % 2 == 0 ? code : code + 1});
    list.push_back({std::nextafter(half, 1e30f), last ? code : code + 1});
  }
  for (const float large : {1e6f, 3e38f, std::numeric_limits<float>::infinity()})
    list.push_back({large, format.largest});
  list.push_back({1e-40f, 0});
  const std::size_t positive = list.size();
  for (std::size_t i = 0; i < positive; ++i) list.push_back({-list[i].value, list[i].code | 0x80u});
  for (const unsigned nan : {0x7fffffffu, 0x7f800001u, 0xffc00000u})
    list.push_back({std::bit_cast<float>(nan), 0x7f});
  return list;
}

}  // namespace

TEST_CASE("every pair of 8-bit floats becomes two f16, on both kinds of chip", "[fp8]") {
  for (const Fp8Format& format : {kE4m3Format, kE5m2Format}) {
    for (const Chip& chip : kChips) {
      INFO(chip.target);
      const Converted got = convert(format, chip, {}, 65536);
      for (unsigned code = 0; code < 256; ++code) check_code(code, got.unpacked[code], format);
      // The upper half does what the lower one does, whatever stands beside it.
      unsigned wrong = 0;
      for (unsigned i = 0; i < 65536; ++i) {
        const unsigned wanted =
            (got.unpacked[i >> 8] & 0xffffu) << 16 | (got.unpacked[i & 0xff] & 0xffffu);
        if (got.unpacked[i] != wanted) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("floats round to the nearest even 8-bit float and saturate; NaN stays NaN", "[fp8]") {
  for (const Fp8Format& format : {kE4m3Format, kE5m2Format}) {
    const std::vector<Rounding> list = roundings(format);
    std::vector<float> in;
    for (std::size_t i = 0; i < list.size(); ++i) {  // each stands once in either half
      in.push_back(list[i].value);
      in.push_back(list[list.size() - 1 - i].value);
    }
    const std::size_t pairs = (list.size() + kBlock - 1) / kBlock * kBlock;
    for (const Chip& chip : kChips) {
      const Converted got = convert(format, chip, in, pairs);
      for (std::size_t i = 0; i < list.size(); ++i) {
        INFO(chip.target << " " << format.element << ": " << list[i].value << " and "
                         << list[list.size() - 1 - i].value);
        CHECK(got.packed[i] == (list[i].code | list[list.size() - 1 - i].code << 8));
      }
    }
  }
}

}  // namespace attnloom::testing
