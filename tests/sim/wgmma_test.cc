// SPDX-License-Identifier: Apache-2.0
// wgmma: every operand form with exact integer results, and what it owns while it is under way.
#include <cmath>

#include "hopper_kernel.h"

namespace attnloom::sim {
namespace {

constexpr int kM = 64;
// Shared memory: A from 0, B from kPlaceB.
constexpr std::uint32_t kPlaceB = 16384, kSharedBytes = kPlaceB + 32768;

struct Form {
  std::string type_a = "bf16", type_b = "bf16";
  int n = 64;
  int swizzle = 128;  // bytes of the pattern; 0: none
  bool transposed_a = false, transposed_b = false;
  bool from_registers = false;
  int sign_a = 1, sign_b = 1;
  bool adds = false;  // to 100 in each element

  bool is_half() const { return type_a == "bf16" || type_a == "f16"; }
  int k() const { return is_half() ? 16 : 32; }
  int bytes() const { return is_half() ? 2 : 1; }
};

// Small integers, which every type holds exactly.
int value_a(int row, int k) {
  return (row * 5 + k * 3) % 7 - 3;
}
int value_b(int k, int column) {
  return (column * 3 + k * 5 + column * k) % 5 - 2;
}

std::uint32_t code(const std::string& type, int v) {
  if (type == "bf16") return bits(static_cast<float>(v)) >> 16;
  std::uint32_t sign = v < 0 ? 1 : 0, m = static_cast<std::uint32_t>(std::abs(v));
  std::uint32_t exponent = m >= 2 ? 1 : 0;  // of 1, 2 and 3
  std::uint32_t fraction = m == 3 ? 1 : 0;  // halves
  if (type == "f16") return sign << 15 | (m == 0 ? 0 : (15 + exponent) << 10 | fraction << 9);
  if (type == "e4m3") return sign << 7 | (m == 0 ? 0 : (7 + exponent) << 3 | fraction << 2);
  return sign << 7 | (m == 0 ? 0 : (15 + exponent) << 2 | fraction << 1);  // e5m2
}

// A matrix of `rows` (M or N) by K as a bulk tensor copy would leave it in shared memory, and its
// descriptor. K-major: slabs of one pattern row each, in which only the first K bytes are used.
struct Image {
  std::vector<std::uint8_t> bytes;
  std::uint64_t descriptor = 0;
};

template <class Value>
Image image(const Form& f, int rows, bool transposed, std::uint32_t place, const std::string& type,
            Value value) {
  Image m;
  m.bytes.assign(32768, 0);
  const int pattern = f.swizzle, group = pattern == 0 ? 128 : 8 * pattern;
  int leading = 0, stride = group;
  if (pattern == 0) {
    // Blocks of 8 x 16 bytes: the two along K are neighbours, or 8 of MN are.
    leading = transposed ? rows / 8 * 128 : 128;
    stride = transposed ? 128 : 256;
  } else if (transposed) {
    leading = 2 * group;  // two groups of 8 along K for each slab
  }
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < f.k(); ++k) {
      int line = transposed ? k : r, byte = (transposed ? r : k) * f.bytes();
      int at = 0;
      if (pattern == 0) {
        at = line % 8 * 16 + byte % 16 +
             (transposed ? line / 8 * leading + byte / 16 * stride
                         : line / 8 * stride + byte / 16 * leading);
      } else {
        int piece = byte % pattern / 16;
        int turned = pattern == 128  ? piece ^ line % 8
                     : pattern == 64 ? piece ^ line / 2 % 4
                                     : piece ^ line / 4 % 2;
        at = line / 8 * stride + line % 8 * pattern + turned * 16 + byte % 16 +
             (transposed ? byte / pattern * leading : 0);
      }
      std::uint32_t c = code(type, value(r, k));
      std::memcpy(&m.bytes[static_cast<std::size_t>(at)], &c, static_cast<std::size_t>(f.bytes()));
    }
  }
  const std::uint64_t mode = pattern == 128 ? 1 : pattern == 64 ? 2 : pattern == 32 ? 3 : 0;
  m.descriptor = place >> 4 | static_cast<std::uint64_t>(leading >> 4) << 16 |
                 static_cast<std::uint64_t>(stride >> 4) << 32 | mode << 62;
  return m;
}

std::string list(const char* name, int first, int n) {
  std::string text = "{";
  for (int k = 0; k < n; ++k) text += (k == 0 ? "%" : ", %") + (name + std::to_string(first + k));
  return text + "}";
}

std::string instruction(const Form& f, const std::string& a, int first_sum = 0) {
  std::string text = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(f.n) + "k" +
                     std::to_string(f.k()) + ".f32." + f.type_a + "." + f.type_b + " " +
                     list("f", first_sum, f.n / 2) + ", " + a + ", %x11, %p3, " +
                     std::to_string(f.sign_a) + ", " + std::to_string(f.sign_b);
  if (f.is_half() && !f.from_registers) text += f.transposed_a ? ", 1" : ", 0";
  if (f.is_half()) text += f.transposed_b ? ", 1" : ", 0";
  return text + "; ";
}

// Copies both images to shared memory, loads A's fragment and the descriptors.
const std::string kFill =
    "mul.wide.u32 %x1, %t, 16; add.u64 %x2, %in, %x1; mov.u32 %r1, 0; shl.b32 %r2, %t, 4; "
    "FILL: ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%x2+2064]; "
    "st.shared.v4.u32 [%r2], {%r10, %r11, %r12, %r13}; add.u64 %x2, %x2, 2048; "
    "add.u32 %r2, %r2, 2048; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 24; @%p1 bra FILL; "
    "add.u64 %x2, %in, %x1; ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%x2+16]; "
    "ld.global.v2.u64 {%x10, %x11}, [%in]; ";
const std::string kVisible = "fence.proxy.async; bar.sync 0; ";
const std::string kIssueEnd = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; ";

std::string set_sums(const Form& f, const char* value) {
  std::string text = f.adds ? "setp.eq.u32 %p3, 0, 0; " : "setp.ne.u32 %p3, 0, 0; ";
  for (int j = 0; j < f.n / 2; ++j) text += "mov.f32 %f" + std::to_string(j) + ", " + value + "; ";
  return text;
}

std::string store_sums(const Form& f) {
  std::string text =
      "mul.wide.u32 %x3, %t, " + std::to_string(2 * f.n) + "; add.u64 %x3, %x3, %out; ";
  for (int j = 0; j < f.n / 2; ++j)
    text += "st.global.f32 [%x3+" + std::to_string(4 * j) + "], %f" + std::to_string(j) + "; ";
  return text;
}

HopperSetup setup(const Form& f) {
  Image a = image(f, kM, f.transposed_a, 0, f.type_a, value_a);
  Image b = image(f, f.n, f.transposed_b, kPlaceB, f.type_b,
                  [](int column, int k) { return value_b(k, column); });
  std::vector<std::uint8_t> all(16 + 2048 + kSharedBytes);
  std::memcpy(&all[0], &a.descriptor, 8);
  std::memcpy(&all[8], &b.descriptor, 8);
  // Register r of lane l: row l / 4 + 8 (r % 2), bytes 4 (l % 4) + 16 (r / 2).
  for (int t = 0; t < 128; ++t) {
    for (int r = 0; r < 4; ++r) {
      for (int e = 0; e < 4 / f.bytes(); ++e) {
        int row = t / 32 * 16 + t % 32 / 4 + 8 * (r % 2);
        int k = (4 * (t % 4) + 16 * (r / 2)) / f.bytes() + e;
        std::uint32_t c = code(f.type_a, value_a(row, k));
        std::memcpy(&all[static_cast<std::size_t>(16 + t * 16 + r * 4 + e * f.bytes())], &c,
                    static_cast<std::size_t>(f.bytes()));
      }
    }
  }
  std::memcpy(&all[16 + 2048], a.bytes.data(), kPlaceB);
  std::memcpy(&all[16 + 2048 + kPlaceB], b.bytes.data(), 32768);
  HopperSetup s;
  s.in.resize(all.size() / 4);
  std::memcpy(s.in.data(), all.data(), all.size());
  s.block = 128;
  s.out_words = static_cast<std::size_t>(64 * f.n);
  s.shared_bytes = kSharedBytes;
  return s;
}

std::string operand_of_a(const Form& f) {
  return f.from_registers ? "{%r20, %r21, %r22, %r23}" : "%x10";
}

std::string whole_kernel(const Form& f) {
  return kFill + kVisible + set_sums(f, "0f42C80000") + "wgmma.fence.sync.aligned; " +
         instruction(f, operand_of_a(f)) + kIssueEnd + store_sums(f);
}

// How many elements are wrong: sums are scale * (A B) + plus.
int wrong(const Form& f, const RunResult& r, int scale, int plus) {
  int count = 0;
  for (int t = 0; t < 128; ++t) {
    for (int j = 0; j < f.n / 2; ++j) {
      int row = t / 32 * 16 + t % 32 / 4 + 8 * (j / 2 % 2),
          column = j / 4 * 8 + 2 * (t % 4) + j % 2;
      int sum = 0;
      for (int k = 0; k < f.k(); ++k) sum += value_a(row, k) * value_b(k, column);
      float got = as_float(r.out[static_cast<std::size_t>(t * f.n / 2 + j)]);
      count += got != static_cast<float>(scale * sum + plus);
    }
  }
  return count;
}

void check(const Form& f) {
  RunResult r = run_hopper(whole_kernel(f), setup(f));
  for (const Finding& x : r.report.findings) UNSCOPED_INFO(x.kind << ": " << x.detail);
  CHECK(r.report.findings.empty());
  INFO(f.type_a << " " << f.type_b << " n " << f.n << " swizzle " << f.swizzle << " transposed "
                << f.transposed_a << f.transposed_b << " registers " << f.from_registers);
  CHECK(wrong(f, r, f.sign_a * f.sign_b, f.adds ? 100 : 0) == 0);
  CHECK(r.report.counters.mma == static_cast<std::uint64_t>(4 * f.n / 8));
}

TEST_CASE("Every type, swizzle and transposition, from shared memory and from registers") {
  for (const char* type : {"bf16", "f16"}) {
    for (int swizzle : {0, 32, 64, 128}) {
      for (int bits = 0; bits < 6; ++bits) {
        Form f;
        f.type_a = f.type_b = type;
        f.swizzle = swizzle;
        f.transposed_b = bits % 2 == 1;
        f.transposed_a = bits / 2 == 1;
        f.from_registers = bits / 2 == 2;
        check(f);
      }
    }
  }
  for (const char* a : {"e4m3", "e5m2"}) {
    for (const char* b : {"e4m3", "e5m2"}) {
      for (int swizzle : {0, 32, 64, 128}) {
        for (bool from_registers : {false, true}) {
          Form f;
          f.type_a = a;
          f.type_b = b;
          f.swizzle = swizzle;
          f.from_registers = from_registers;
          check(f);
        }
      }
    }
  }
}

TEST_CASE("Every N, signs and sums") {
  for (int n = 8; n <= 256; n += 8) {
    Form f;
    f.n = n;
    f.adds = n % 16 == 0;
    f.from_registers = n % 24 == 0;
    check(f);
  }
  Form f;
  f.adds = true;
  f.sign_a = -1;
  check(f);
  f.sign_b = -1;
  check(f);
  f.sign_a = 1;
  f.from_registers = true;
  check(f);
}

TEST_CASE("The same bits on every instruction set") {
  Form f;
  const std::string text = whole_kernel(f);
  RunResult r = run_hopper(text, setup(f));
  HopperSetup unchecked = setup(f);
  unchecked.options.checks = false;
  CHECK(run_hopper(text, unchecked).out == r.out);
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    const ProductOps& ops = select_products(isa);
    std::vector<float> a(64 * 16), b(16 * 40), sum(64 * 40, 0.1f), first = sum;
    for (std::size_t k = 0; k < a.size(); ++k) a[k] = 1.0f / static_cast<float>(k + 3);
    for (std::size_t k = 0; k < b.size(); ++k) b[k] = 0.7f - static_cast<float>(k) * 0.013f;
    ops.multiply(a.data(), b.data(), sum.data(), 64, 40, 16);
    select_products(Isa::kBaseline).multiply(a.data(), b.data(), first.data(), 64, 40, 16);
    CHECK(sum == first);
  }
}

TEST_CASE("A chain of products adds up, group by group") {
  Form f;
  f.n = 32;
  f.adds = true;
  const std::string one = instruction(f, "%x10"), other = instruction(f, "%x10", 16);
  std::string more;
  for (int j = 16; j < 32; ++j) more += "mov.f32 %f" + std::to_string(j) + ", 0f42C80000; ";
  const std::string begin =
      kFill + kVisible + set_sums(f, "0f42C80000") + more + "wgmma.fence.sync.aligned; " + one +
      one + "wgmma.commit_group.sync.aligned; " + other + "wgmma.commit_group.sync.aligned; ";
  RunResult r = run_hopper(begin + "wgmma.wait_group.sync.aligned 1; " + store_sums(f) +
                               "wgmma.wait_group.sync.aligned 0; ",
                           setup(f));
  CHECK(r.report.findings.empty());
  CHECK(wrong(f, r, 2, 100) == 0);
  RunResult early =
      run_hopper(begin + store_sums(f) + "wgmma.wait_group.sync.aligned 0; ", setup(f));
  CHECK(early.count("in-flight-register") == 16 * 4);
  CHECK(early.out[0] == 0xffffffffu);
  // Two sums of the second group while only the first was waited for.
  CHECK(run_hopper(begin + "wgmma.wait_group.sync.aligned 1; add.f32 %f90, %f20, %f21; "
                           "wgmma.wait_group.sync.aligned 0; ",
                   setup(f))
            .count("in-flight-register") == 8);
}

TEST_CASE("Registers and shared memory of a product under way belong to it") {
  Form f;
  f.n = 16;
  f.from_registers = true;
  const std::string begin = kFill + kVisible + set_sums(f, "0f00000000");
  const std::string fence = "wgmma.fence.sync.aligned; ", product = instruction(f, operand_of_a(f));
  CHECK(run_hopper(begin + product + kIssueEnd, setup(f)).count("missing-wgmma-fence") == 4);
  CHECK(run_hopper(begin + fence + "add.u32 %r20, %r20, 0; " + product + kIssueEnd, setup(f))
            .count("missing-wgmma-fence") == 4);
  CHECK(run_hopper(begin + fence + product + "mov.u32 %r21, 5; " + kIssueEnd, setup(f))
            .count("in-flight-register") == 4);
  CHECK(run_hopper(begin + fence + product + kIssueEnd + "mov.u32 %r21, 5; ", setup(f))
            .report.findings.empty());
  RunResult no_fence = run_hopper(
      kFill + "bar.sync 0; " + set_sums(f, "0f00000000") + fence + product + kIssueEnd, setup(f));
  CHECK(no_fence.count("missing-proxy-fence") > 0);
  CHECK(no_fence.report.findings.size() == 1);
  // B is overwritten while the product may still read it.
  const std::string write = "st.shared.u32 [%r2+-32768], %t; ";
  CHECK(run_hopper(begin + fence + product + "bar.sync 0; " + write + kIssueEnd, setup(f))
            .count("race-shared") > 0);
  CHECK(run_hopper(begin + fence + product + kIssueEnd + "bar.sync 0; " + write, setup(f))
            .report.findings.empty());
}

TEST_CASE("All four warps must issue a product") {
  Form f;
  f.n = 8;
  const std::string product = "wgmma.fence.sync.aligned; " + instruction(f, "%x10");
  RunResult hang =
      run_hopper(kFill + kVisible + set_sums(f, "0f00000000") +
                     "setp.eq.u32 %p4, %w, 2; @%p4 bra END; " + product + kIssueEnd + "END: ",
                 setup(f));
  REQUIRE(hang.find("deadlock") != nullptr);
  CHECK(hang.find("deadlock")->detail.find("that its whole warpgroup has not issued") !=
        std::string::npos);
  RunResult differ =
      run_hopper(kFill + kVisible + set_sums(f, "0f00000000") +
                     "setp.eq.u32 %p4, %w, 2; @%p4 add.u64 %x11, %x11, 8; " + product + kIssueEnd,
                 setup(f));
  CHECK(differ.count("bad-wgmma") >= 1);
  RunResult offset = run_hopper(kFill + kVisible + set_sums(f, "0f00000000") +
                                    "or.b64 %x11, %x11, 562949953421312; " + product + kIssueEnd,
                                setup(f));
  CHECK(offset.count("bad-wgmma") == 1);
}

TEST_CASE("Forms that do not exist are refused by name") {
  auto refused = [](const std::string& line) {
    std::string text =
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n"
        ".reg .f32 %f<128>;\n.reg .b64 %x<20>;\n.reg .pred %p<4>;\n.reg .b32 %r<30>;\n";
    return !load_module(text + line + "\nret;\n}\n").ok();
  };
  Form f;
  CHECK(!refused(instruction(f, "%x10")));
  f.n = 12;
  CHECK(refused(instruction(f, "%x10")));
  f = Form{};
  f.type_b = "f16";
  CHECK(refused(instruction(f, "%x10")));
  CHECK(refused("setmaxnreg.inc.sync.aligned.u32 28;"));
  CHECK(refused("wgmma.wait_group.sync.aligned %r1;"));
}

}  // namespace
}  // namespace attnloom::sim
