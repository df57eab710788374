// SPDX-License-Identifier: Apache-2.0
#include "tools/case/npy.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/base/temp_directory.h"

namespace attnloom {
namespace {

// A file of version 1 with a header as given.
std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + data;
}

std::string header_of(const std::string& type, const std::string& shape,
                      const std::string& order = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

TEST_CASE("Each type that is read") {
  const auto f32 =
      parse_npy(file_of(header_of("<f4", "(2,)"), std::string("\0\0\x80\x3F\0\0\xC0\x7F", 8)), "x");
  REQUIRE(f32.ok());
  CHECK(f32->shape == std::vector<std::int64_t>{2});
  CHECK(f32->values[0] == 1.0);
  CHECK(std::isnan(f32->values[1]));
  const auto f16 =
      parse_npy(file_of(header_of("<f2", "(1, 2)"), std::string("\0\x3C\1\0", 4)), "x");
  REQUIRE(f16.ok());
  CHECK(f16->shape == std::vector<std::int64_t>{1, 2});
  CHECK(f16->values == std::vector<double>{1.0, 0x1p-24});
  const auto i32 = parse_npy(file_of(header_of("<i4", "()"), "\xFE\xFF\xFF\xFF"), "x");
  REQUIRE(i32.ok());
  CHECK(i32->shape.empty());
  CHECK(i32->values == std::vector<double>{-2});
  CHECK(parse_npy(file_of(header_of("<f4", "(0, 3)"), ""), "x").value().values.empty());
}

TEST_CASE("What is written is what numpy writes, and is read again") {
  const std::vector<std::int64_t> shape = {1, 3};
  const std::string bytes = npy_of_f32(shape, std::vector<double>{1, -2.5, 0.1});
  // numpy.save of the same array, byte by byte: the header is padded so that the data starts at
  // 128.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }";
  header.resize(117, ' ');
  header += '\n';
  const std::string data("\0\0\x80\x3F\0\0\x20\xC0\xCD\xCC\xCC\x3D", 12);
  CHECK(bytes == file_of(header, data));
  CHECK(bytes.size() == 128 + 12);
  const auto again = parse_npy(bytes, "x");
  REQUIRE(again.ok());
  CHECK(again->shape == shape);
  CHECK(again->values == std::vector<double>{1, -2.5, static_cast<double>(0.1f)});
  for (const std::vector<std::int64_t>& extents :
       {std::vector<std::int64_t>{}, std::vector<std::int64_t>{1},
        std::vector<std::int64_t>{1, 1, 1}}) {
    CHECK(parse_npy(npy_of_f32(extents, std::vector<double>{4}), "x").value().shape == extents);
  }
}

TEST_CASE("Files") {
  const TempDirectory root;
  const std::vector<std::int64_t> shape = {1};
  REQUIRE(write_npy_f32(root / "a.npy", shape, std::vector<double>{3}).ok());
  CHECK(read_npy(root / "a.npy").value().values == std::vector<double>{3});
  CHECK(read_npy(root / "b.npy").status().code == Code::kTensorInvalid);
  CHECK_FALSE(read_npy(root.path()).ok());
  CHECK_FALSE(write_npy_f32(root / "no/a.npy", shape, std::vector<double>{3}).ok());
}

TEST_CASE("Everything else is refused with what it is") {
  const auto cause = [](const std::string& bytes) {
    const auto array = parse_npy(bytes, "x");
    REQUIRE_FALSE(array.ok());
    CHECK(array.status().code == Code::kTensorInvalid);
    return array.status().cause;
  };
  CHECK(cause("") == "not a .npy file");
  CHECK(cause("PK\3\4 a zip file") == "not a .npy file");
  CHECK(cause(file_of(header_of(">f4", "(1,)"), "1234")).find("given >f4") != std::string::npos);
  CHECK(cause(file_of(header_of("<f8", "(1,)"), "12345678")).find("given <f8") !=
        std::string::npos);
  CHECK(cause(file_of(header_of("<f4", "(1,)", "True"), "1234")) ==
        "wanted C order, given Fortran order");
  CHECK(cause(file_of(header_of("<f4", "(2,)"), "1234")).find("8 bytes of data, the file has 4") !=
        std::string::npos);
  CHECK(cause(file_of(header_of("<f4", "(1,)"), "12345")).find("has 5") != std::string::npos);
  CHECK(cause(file_of(header_of("<f4", "(4294967296, 4294967296)"), "")) ==
        "the shape is too large");
  const std::string damaged = "the .npy header is damaged";
  CHECK(cause(file_of("{'descr': '<f4', 'shape': (1,), }\n", "1234")) == damaged);
  CHECK(cause(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), \n", "1234")) ==
        damaged);
  CHECK(cause(file_of(header_of("<f4", "(-1,)"), "")) == damaged);
  CHECK(cause(file_of(header_of("<f4", "(1,)"), "").substr(0, 40)) == damaged);
  std::string version = file_of(header_of("<f4", "(1,)"), "1234");
  version[6] = 9;
  CHECK(cause(version) == "unknown .npy version");
}

}  // namespace
}  // namespace attnloom
