// SPDX-License-Identifier: Apache-2.0
#include "tools/case/npy.h"

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "reference/number_format.h"

namespace attnloom {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are read and written as they lie");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of the data, as numpy writes it

// Reads a Python dictionary literal of the one form that the format allows.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  bool accept(std::string_view token) {
    skip_spaces();
    if (text_.substr(0, token.size()) != token) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  bool quoted(std::string& out) {
    skip_spaces();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return false;
    const auto end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool integer(std::int64_t& out) {
    skip_spaces();
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), out);
    if (error != std::errc{} || out < 0) return false;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return true;
  }
  bool at_end() {
    skip_spaces();
    return text_.empty();
  }

 private:
  void skip_spaces() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  std::string_view text_;
};

struct Header {
  std::string type;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

bool parse_shape(HeaderReader& reader, std::vector<std::int64_t>& shape) {
  if (!reader.accept("(")) return false;
  while (!reader.accept(")")) {
    std::int64_t extent = 0;
    if (!reader.integer(extent)) return false;
    shape.push_back(extent);
    if (!reader.accept(",")) return reader.accept(")");
  }
  return true;
}

bool parse_header(std::string_view text, Header& header) {
  HeaderReader reader(text);
  bool has_type = false, has_order = false, has_shape = false;
  if (!reader.accept("{")) return false;
  while (!reader.accept("}")) {
    std::string key;
    if (!reader.quoted(key) || !reader.accept(":")) return false;
    if (key == "descr") {
      has_type = reader.quoted(header.type);
    } else if (key == "fortran_order") {
      header.fortran_order = reader.accept("True");
      has_order = header.fortran_order || reader.accept("False");
    } else if (key == "shape") {
      has_shape = parse_shape(reader, header.shape);
    } else {
      return false;
    }
    if (reader.accept(",")) continue;
    if (!reader.accept("}")) return false;
    break;
  }
  return reader.at_end() && has_type && has_order && has_shape;
}

template <class Stored, class Convert>
void append(std::string_view data, std::vector<double>& values, Convert convert) {
  values.reserve(data.size() / sizeof(Stored));
  for (std::size_t i = 0; i + sizeof(Stored) <= data.size(); i += sizeof(Stored)) {
    Stored stored;
    std::memcpy(&stored, data.data() + i, sizeof stored);
    values.push_back(convert(stored));
  }
}

Status invalid(const std::string& name, std::string cause) {
  return make_error(Code::kTensorInvalid, name, std::move(cause));
}

// Splits off the header; `data` becomes what follows it.
Result<Header> split_header(std::string_view& data, const std::string& name) {
  if (data.substr(0, kMagic.size()) != kMagic || data.size() < 10) {
    return invalid(name, "not a .npy file");
  }
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(data[i]); };
  // Version 1 has a length of 2 bytes, versions 2 and 3 one of 4.
  const std::size_t length_bytes = byte(6) == 1 ? 2 : 4;
  const std::size_t start = 8 + length_bytes;
  if (byte(6) < 1 || byte(6) > 3 || data.size() < start) {
    return invalid(name, "unknown .npy version");
  }
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= std::size_t{byte(8 + i)} << (8 * i);
  Header header;
  if (data.size() - start < length || !parse_header(data.substr(start, length), header)) {
    return invalid(name, "the .npy header is damaged");
  }
  data.remove_prefix(start + length);
  return header;
}

}  // namespace

Result<NpyArray> parse_npy(std::string_view bytes, const std::string& name) {
  std::string_view data = bytes;
  ATTNLOOM_TRY(const Header header, split_header(data, name));
  if (header.fortran_order) return invalid(name, "wanted C order, given Fortran order");
  const std::size_t element_bytes = header.type == "<f2" ? 2 : 4;
  if (header.type != "<f4" && header.type != "<f2" && header.type != "<i4") {
    return invalid(name, "wanted f32, f16 or i32 (<f4, <f2, <i4), given " + header.type);
  }
  std::size_t wanted_bytes = element_bytes;
  for (const std::int64_t extent : header.shape) {
    if (__builtin_mul_overflow(wanted_bytes, static_cast<std::size_t>(extent), &wanted_bytes)) {
      return invalid(name, "the shape is too large");
    }
  }
  if (data.size() != wanted_bytes) {
    return invalid(name, "the shape asks for " + std::to_string(wanted_bytes) +
                             " bytes of data, the file has " + std::to_string(data.size()));
  }
  NpyArray array{header.shape, {}};
  if (header.type == "<f4") {
    append<float>(data, array.values, [](float value) { return static_cast<double>(value); });
  } else if (header.type == "<i4") {
    append<std::int32_t>(data, array.values, [](std::int32_t value) { return double{} + value; });
  } else {
    append<std::uint16_t>(data, array.values, [](std::uint16_t bits) {
      return reference::from_bits(bits, DType::kF16);
    });
  }
  return array;
}

Result<NpyArray> read_npy(const std::string& path) {
  // Not a stream: it throws when the path is a directory.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  std::string bytes;
  if (file != nullptr) {
    char buffer[65536];
    while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
      bytes.append(buffer, count);
    }
  }
  if (file == nullptr || std::ferror(file.get()) != 0) return invalid(path, "cannot read the file");
  return parse_npy(bytes, path);
}

std::string npy_of_f32(std::span<const std::int64_t> shape, std::span<const double> values) {
  std::string extents;
  for (const std::int64_t extent : shape) extents += std::to_string(extent) + ", ";
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  if (shape.size() == 1) extents.resize(extents.size() - 1);  // "(3,)": a tuple of one
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + extents + "), }";
  const std::size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += std::string("\1\0", 2);
  bytes += static_cast<char>(header.size() & 0xFFu);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  for (const double value : values) {
    const auto stored = static_cast<float>(value);
    bytes.append(reinterpret_cast<const char*>(&stored), sizeof stored);
  }
  return bytes;
}

Status write_npy_f32(const std::string& path, std::span<const std::int64_t> shape,
                     std::span<const double> values) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const std::string bytes = npy_of_f32(shape, values);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) return ok_status();
  return make_error(Code::kArgumentInvalid, path, "cannot write the file");
}

}  // namespace attnloom
