// SPDX-License-Identifier: Apache-2.0
#include "tools/case/params_section.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "reference/number_format.h"
#include "tools/case/tensor_source.h"

namespace attnloom {
namespace {

constexpr int kMaxRank = 5;  // of TensorView
constexpr std::string_view kPointerKeys[] = {"dtype", "shape", "data", "random", "seed", "scale"};
constexpr std::string_view kDataKeys[] = {"dtype", "shape", "data"};

// The element of a pointer type: "f32" of "ptr<f32>".
std::string_view element_name(ParamType type) {
  std::string_view name = json_name(type);
  name.remove_prefix(std::string_view("ptr<").size());
  name.remove_suffix(1);
  return name;
}

bool is_integer(ParamType type) {
  return type == ParamType::kI32 || type == ParamType::kU32 || type == ParamType::kPtrI32 ||
         type == ParamType::kPtrU8;
}

struct Range {
  double least;
  double most;
};
// REQUIRES: is_integer(type)
Range range_of(ParamType type) {
  if (type == ParamType::kPtrU8) return {0, 255};
  if (type == ParamType::kU32) return {0, double{std::numeric_limits<std::uint32_t>::max()}};
  return {double{std::numeric_limits<std::int32_t>::min()},
          double{std::numeric_limits<std::int32_t>::max()}};
}

Status check_value(const JsonNode& node, ParamType type, double value) {
  if (is_integer(type)) {
    const Range range = range_of(type);
    // A NaN is outside of every range.
    const bool inside = value >= range.least && value <= range.most;
    if (!inside || value != std::floor(value))
      return node.wanted("integers of " + std::string(json_name(type)));
    return ok_status();
  }
  const bool overflows =
      std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max();
  return overflows ? node.wanted("values that f32 can hold") : ok_status();
}

template <class Stored>
void store(Stored stored, CasePointerParam& param) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&stored);
  param.bytes.insert(param.bytes.end(), bytes, bytes + sizeof stored);
  param.values.push_back(static_cast<double>(stored));
}

void store_bits(double value, DType dtype, CasePointerParam& param) {
  const std::uint16_t bits = reference::to_bits(value, dtype);
  store(bits, param);
  param.values.back() = reference::from_bits(bits, dtype);
}

void store_value(double value, CasePointerParam& param) {
  switch (param.type) {
    case ParamType::kPtrF16:
      return store_bits(value, DType::kF16, param);
    case ParamType::kPtrBf16:
      return store_bits(value, DType::kBf16, param);
    case ParamType::kPtrI32:
      return store(static_cast<std::int32_t>(value), param);
    case ParamType::kPtrU8:
      return store(static_cast<std::uint8_t>(value), param);
    default:
      return store(static_cast<float>(value), param);
  }
}

Status read_scalar(const JsonNode& node, const Param& param, CaseFile& file) {
  ATTNLOOM_TRY(const double value, node.number(/*special=*/param.type == ParamType::kF32));
  ATTNLOOM_CHECK(check_value(node, param.type, value));
  file.scalars.push_back({param.name, value});
  return ok_status();
}

Result<std::vector<double>> read_data(const JsonNode& node, const Param& param,
                                      const std::vector<std::int64_t>& shape) {
  if (node.has("random")) {
    if (node.has("data")) return node.refuse("both data and random", "keep one");
    if (is_integer(param.type)) return node.refuse("random gives no integers", "use data");
    return generate_tensor(node, shape);
  }
  ATTNLOOM_CHECK(node.check_keys(kDataKeys));
  ATTNLOOM_TRY(const JsonNode data, node.member("data"));
  if (data.value().is_object()) return data.wanted("a number or a list");
  return expand_tensor(data, shape, "");
}

Status read_pointer(const JsonNode& node, const Param& param, CaseFile& file) {
  ATTNLOOM_CHECK(node.check_keys(kPointerKeys));
  ATTNLOOM_TRY(const JsonNode dtype, node.member("dtype"));
  if (dtype.value() != element_name(param.type)) {
    return dtype.wanted("\"" + std::string(element_name(param.type)) + "\", as the spec says");
  }
  ATTNLOOM_TRY(const JsonNode shape_node, node.member("shape"));
  ATTNLOOM_TRY(const std::vector<std::int32_t> extents, shape_node.int32s());
  CasePointerParam pointer{param.name, param.type, {extents.begin(), extents.end()}, {}, {}};
  if (std::ssize(pointer.shape) > kMaxRank) {
    return shape_node.refuse("wanted at most " + std::to_string(kMaxRank) + " dimensions, given " +
                             std::to_string(pointer.shape.size()));
  }
  if (!element_count(pointer.shape)) return shape_node.wanted("a smaller shape");
  const bool is_sink = param.name == file.spec.variant.sink;
  if (is_sink && pointer.shape != std::vector<std::int64_t>{file.q_heads}) {
    return shape_node.wanted("[" + std::to_string(file.q_heads) + "], a sink a query head");
  }
  ATTNLOOM_TRY(const std::vector<double> values, read_data(node, param, pointer.shape));
  for (const double value : values) {
    ATTNLOOM_CHECK(check_value(node, param.type, value));
    store_value(value, pointer);
  }
  file.pointers.push_back(std::move(pointer));
  return ok_status();
}

}  // namespace

Status read_params(const JsonNode& inputs, const CaseOptions& options, CaseFile& file) {
  const std::vector<Param>& params = file.spec.variant.params;
  if (!inputs.has("params") && params.empty()) return ok_status();
  ATTNLOOM_TRY(const JsonNode node, inputs.member("params"));
  std::vector<std::string_view> names;
  for (const Param& param : params) names.push_back(param.name);
  ATTNLOOM_CHECK(node.check_keys(names));
  for (const Param& param : params) {
    if (is_pointer(param.type) && !options.tensors) continue;
    ATTNLOOM_TRY(const JsonNode value, node.member(param.name));
    ATTNLOOM_CHECK(is_pointer(param.type) ? read_pointer(value, param, file)
                                          : read_scalar(value, param, file));
  }
  return ok_status();
}

}  // namespace attnloom
