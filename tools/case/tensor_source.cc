// SPDX-License-Identifier: Apache-2.0
#include "tools/case/tensor_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "reference/generators.h"
#include "reference/number_format.h"
#include "tools/case/npy.h"

namespace attnloom {
namespace {

using Extents = std::span<const std::int64_t>;

constexpr std::string_view kRandomKeys[] = {"random", "seed", "scale"};
constexpr std::string_view kNpyKeys[] = {"npy"};
constexpr std::int64_t kMaxSeed = std::numeric_limits<std::uint32_t>::max();

std::string print(Extents extents) {
  std::string text;
  for (const std::int64_t extent : extents) text += "[" + std::to_string(extent) + "]";
  return text.empty() ? "a number" : text;
}

std::int64_t product(Extents extents) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  return count;
}

// Appends the elements of `node`, which stands for a block of `extents`.
Status append_list(const JsonNode& node, Extents extents, std::vector<double>& values) {
  if (!node.value().is_array()) {
    ATTNLOOM_TRY(const double value, node.number(/*special=*/true));
    values.insert(values.end(), static_cast<std::size_t>(product(extents)), value);
    return ok_status();
  }
  if (extents.empty()) return node.wanted("a number: the list is nested too deep");
  ATTNLOOM_TRY(const std::vector<JsonNode> elements, node.elements());
  if (std::ssize(elements) != extents[0]) {
    return node.refuse("wanted " + std::to_string(extents[0]) + " entries, given " +
                       std::to_string(elements.size()));
  }
  for (const JsonNode& element : elements) {
    if (element.value().is_array() != elements[0].value().is_array()) {
      return element.refuse("lists and numbers side by side", "give all entries the same depth");
    }
    ATTNLOOM_CHECK(append_list(element, extents.subspan(1), values));
  }
  return ok_status();
}

Result<std::vector<double>> load_npy(const JsonNode& node, Extents extents,
                                     const std::string& directory) {
  ATTNLOOM_CHECK(node.check_keys(kNpyKeys));
  ATTNLOOM_TRY(const JsonNode file, node.member("npy"));
  ATTNLOOM_TRY(const std::string name, file.text());
  if (name.empty() || name[0] == '/') {
    return file.wanted("a path relative to the case file");
  }
  auto loaded = read_npy(directory.empty() ? name : directory + "/" + name);
  if (!loaded.ok()) return file.refuse("\"" + name + "\": " + loaded.status().cause);
  const Extents shape(loaded->shape);
  if (shape.size() > extents.size() || !std::equal(shape.begin(), shape.end(), extents.begin())) {
    return file.refuse("wanted " + print(extents) + " or its first dimensions, given " +
                       print(shape));
  }
  const std::int64_t repeat = product(extents.subspan(shape.size()));
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(product(extents)));
  for (const double value : loaded->values) {
    values.insert(values.end(), static_cast<std::size_t>(repeat), value);
  }
  return values;
}

}  // namespace

std::optional<std::int64_t> element_count(Extents extents) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) {
    if (__builtin_mul_overflow(count, extent, &count) || count > kMaxElements) return std::nullopt;
  }
  return count;
}

Result<std::vector<double>> generate_tensor(const JsonNode& node, Extents extents) {
  ATTNLOOM_TRY(const JsonNode kind, node.member("random"));
  ATTNLOOM_TRY(const std::string name, kind.text());
  const auto generator = reference::parse_generator(name);
  if (!generator) return kind.wanted("\"normal\" or \"uniform\"");
  ATTNLOOM_TRY(const JsonNode seed_node, node.member("seed"));
  ATTNLOOM_TRY(const std::int64_t seed, seed_node.integer(0, kMaxSeed));
  double scale = 1;
  if (node.has("scale")) {
    ATTNLOOM_TRY(const JsonNode scale_node, node.member("scale"));
    ATTNLOOM_TRY(scale, scale_node.number(/*special=*/false));
  }
  std::vector<double> values(static_cast<std::size_t>(product(extents)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * reference::random_value(*generator, static_cast<std::uint64_t>(seed), i);
  }
  return values;
}

Result<std::vector<double>> expand_tensor(const JsonNode& node, Extents extents,
                                          const std::string& directory) {
  if (!element_count(extents)) {
    return node.refuse("wanted at most " + std::to_string(kMaxElements) + " elements, given " +
                       print(extents));
  }
  if (node.has("npy")) return load_npy(node, extents, directory);
  if (node.value().is_object()) {
    ATTNLOOM_CHECK(node.check_keys(kRandomKeys));
    return generate_tensor(node, extents);
  }
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(product(extents)));
  ATTNLOOM_CHECK(append_list(node, extents, values));
  return values;
}

Result<CaseTensor> round_tensor(const JsonNode& node, const std::vector<double>& values,
                                std::span<const std::int64_t, 3> shape, DType dtype) {
  CaseTensor tensor;
  std::copy(shape.begin(), shape.end(), tensor.shape);
  tensor.bits.reserve(values.size());
  tensor.values.reserve(values.size());
  for (const double value : values) {
    const std::uint16_t bits = reference::to_bits(value, dtype);
    const double rounded = reference::from_bits(bits, dtype);
    if (std::isinf(rounded) && std::isfinite(value)) {
      return node.refuse("wanted values that " + std::string(json_name(dtype)) +
                             " can hold, given " + canonical_json(Json(value)),
                         "write \"inf\" where infinity is meant");
    }
    if (std::isinf(value) && !std::isinf(rounded)) {
      return node.refuse(std::string(json_name(dtype)) + " has no infinity",
                         "give its largest number");
    }
    tensor.bits.push_back(bits);
    tensor.values.push_back(rounded);
  }
  return tensor;
}

}  // namespace attnloom
