// SPDX-License-Identifier: Apache-2.0
#include "spec/parse.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <utility>

#include "base/format_version.h"
#include "spec/compose.h"
#include "spec/kernel_keys.h"
#include "spec/object_reader.h"
#include "spec/variant_rules.h"

namespace attnloom {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

constexpr std::string_view kSpecKeys[] = {"attnloom", "kernel",     "target", "task", "dtype",
                                          "head_dim", "group_size", "layout", "tile", "variant"};
constexpr std::string_view kDTypeKeys[] = {"q", "kv", "o"};
constexpr std::string_view kHeadDimKeys[] = {"qk", "vo"};
constexpr std::string_view kLayoutKeys[] = {"kv", "page_size", "block"};
constexpr std::string_view kTileKeys[] = {"q", "kv", "family", "classes"};
constexpr std::string_view kMaskKeys[] = {"causal", "window_left", "custom"};
constexpr std::string_view kRopeKeys[] = {"style", "rotary_dim"};
constexpr std::string_view kParamKeys[] = {"name", "type"};
constexpr std::string_view kVariantKeys[] = {"name",
                                             "mask",
                                             "params",
                                             "softmax",
                                             "sink",
                                             "kv_scale",
                                             "rope",
                                             "prelude",
                                             "logits_transform",
                                             "logits_mask",
                                             "tile_mask",
                                             "output_transform",
                                             "query_transform",
                                             "key_transform",
                                             "value_transform",
                                             "compose"};

class SpecParser {
 public:
  SpecParser(const JsonDocument& document, std::string root)
      : document_(document), root_(std::move(root)) {}

  Result<ParsedSpec> parse(const Json& value) {
    ATTNLOOM_TRY(const ObjectReader top, ObjectReader::open(document_, value, root_, kSpecKeys));
    ATTNLOOM_CHECK(read_version(top));
    ATTNLOOM_CHECK(top.require("kernel"));
    ATTNLOOM_CHECK(top.read("kernel", kernel_kinds(), spec_.kernel));
    ATTNLOOM_CHECK(read_target(top));
    ATTNLOOM_CHECK(refuse_unused(top, kSpecKeys, ""));
    for (const char* key : {"dtype", "head_dim", "group_size", "layout"}) {
      if (kernel_uses(spec_.kernel, key)) ATTNLOOM_CHECK(top.require(key));
    }
    ATTNLOOM_CHECK(top.read("task", tasks(), spec_.task));
    ATTNLOOM_CHECK(read_dtype(top));
    ATTNLOOM_CHECK(read_head_dim(top));
    ATTNLOOM_CHECK(top.read("group_size", 1, kMaxInt, spec_.group_size));
    ATTNLOOM_CHECK(read_layout(top));
    ATTNLOOM_CHECK(read_tile(top));
    ATTNLOOM_CHECK(read_variant(top));
    return ParsedSpec{std::move(spec_), std::move(field_lines_), std::move(composed_),
                      own_functors_};
  }

 private:
  Status read_version(const ObjectReader& top) {
    ATTNLOOM_CHECK(top.require("attnloom"));
    const Json& version = top.at("attnloom");
    if (version.is_number_unsigned() && reads_version(version.get<std::uint64_t>(), kSpecVersion))
      return ok_status();
    return top.refuse(top.path("attnloom"),
                      "wanted " + std::to_string(kSpecVersion) +
                          ", the version of the spec that this library reads, "
                          "given " +
                          shown(version),
                      "");
  }

  Status read_target(const ObjectReader& top) {
    if (!top.has("target")) return ok_status();
    std::string name;
    ATTNLOOM_CHECK(top.read("target", name));
    spec_.target = parse_target(name);
    if (spec_.target) return ok_status();
    if (name.rfind("compute_", 0) == 0) {
      return top.refuse(top.path("target"),
                        shown(Json(name)) + " is a virtual target, for which no cubin exists",
                        "name the chip: sm_NN, with a or f for its own or its family's features");
    }
    return top.refuse(top.path("target"),
                      "wanted sm_NN, sm_NNa or sm_NNf, given " + shown(Json(name)), "");
  }

  Status not_used(const ObjectReader& reader, std::string_view key) {
    return reader.refuse(
        reader.path(key),
        "kernel \"" + std::string(json_name(spec_.kernel)) + "\" does not use this key",
        "remove it");
  }
  // `prefix` is the object's own path below the spec, "dtype." for one.
  Status refuse_unused(const ObjectReader& reader, std::span<const std::string_view> keys,
                       const std::string& prefix) {
    for (const std::string_view key : keys) {
      if (reader.has(key) && !kernel_uses(spec_.kernel, prefix + std::string(key)))
        return not_used(reader, key);
    }
    return ok_status();
  }
  // The keys of an object that has no defaults.
  Status require_used(const ObjectReader& reader, std::span<const std::string_view> keys,
                      const std::string& prefix) {
    for (const std::string_view key : keys) {
      if (kernel_uses(spec_.kernel, prefix + std::string(key))) ATTNLOOM_CHECK(reader.require(key));
    }
    return refuse_unused(reader, keys, prefix);
  }

  Status read_dtype(const ObjectReader& top) {
    if (!top.has("dtype")) return ok_status();
    ATTNLOOM_TRY(const ObjectReader reader,
                 ObjectReader::open(document_, top.at("dtype"), top.path("dtype"), kDTypeKeys));
    ATTNLOOM_CHECK(require_used(reader, kDTypeKeys, "dtype."));
    const std::vector<DType> sixteen_bits = {DType::kF16, DType::kBf16};
    ATTNLOOM_CHECK(reader.read("q", dtypes(), spec_.dtype.q, sixteen_bits));
    ATTNLOOM_CHECK(reader.read("kv", dtypes(), spec_.dtype.kv));
    return reader.read("o", dtypes(), spec_.dtype.o, sixteen_bits);
  }

  Status read_head_dim(const ObjectReader& top) {
    if (!top.has("head_dim")) return ok_status();
    ATTNLOOM_TRY(const ObjectReader reader, ObjectReader::open(document_, top.at("head_dim"),
                                                               top.path("head_dim"), kHeadDimKeys));
    ATTNLOOM_CHECK(require_used(reader, kHeadDimKeys, "head_dim."));
    ATTNLOOM_CHECK(reader.read("qk", 1, kMaxInt, spec_.head_dim.qk));
    return reader.read("vo", 1, kMaxInt, spec_.head_dim.vo);
  }

  Status read_layout(const ObjectReader& top) {
    if (!top.has("layout")) return ok_status();
    ATTNLOOM_TRY(const ObjectReader reader,
                 ObjectReader::open(document_, top.at("layout"), top.path("layout"), kLayoutKeys));
    Layout& layout = spec_.layout;
    ATTNLOOM_CHECK(reader.require("kv"));
    ATTNLOOM_CHECK(reader.read("kv", kv_layouts(), layout.kv));
    ATTNLOOM_CHECK(belongs_to(reader, "page_size", layout.kv == KvLayout::kPaged, "paged"));
    ATTNLOOM_CHECK(belongs_to(reader, "block", layout.kv == KvLayout::kBsr, "bsr"));
    ATTNLOOM_CHECK(reader.read("page_size", 1, kMaxInt, layout.page_size));
    if (!reader.has("block")) return ok_status();
    const Json& block = reader.at("block");
    const auto is_size = [](const Json& value) {
      return value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
             value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxInt);
    };
    if (!block.is_array() || block.size() != 2 || !is_size(block[0]) || !is_size(block[1])) {
      return reader.wrong_type("block", "[query tokens, KV tokens]");
    }
    layout.block_rows = block[0].get<int>();
    layout.block_columns = block[1].get<int>();
    return ok_status();
  }
  Status belongs_to(const ObjectReader& reader, std::string_view key, bool wanted,
                    std::string_view layout) {
    if (wanted) return reader.require(key);
    if (!reader.has(key)) return ok_status();
    return reader.refuse(reader.path(key),
                         "only layout \"" + std::string(layout) + "\" uses this key", "remove it");
  }

  Status read_tile(const ObjectReader& top) {
    if (!top.has("tile") || top.at("tile") == "auto") return ok_status();
    if (!top.at("tile").is_object()) {
      return top.wrong_type("tile", "\"auto\", {\"q\", \"kv\"} or {\"classes\": [...]}");
    }
    ATTNLOOM_TRY(const ObjectReader reader,
                 ObjectReader::open(document_, top.at("tile"), top.path("tile"), kTileKeys));
    if (!reader.has("classes")) {
      FixedTile tile;
      ATTNLOOM_CHECK(reader.require("q"));
      ATTNLOOM_CHECK(reader.require("kv"));
      ATTNLOOM_CHECK(reader.read("q", 1, kMaxInt, tile.q));
      ATTNLOOM_CHECK(reader.read("kv", 1, kMaxInt, tile.kv));
      ATTNLOOM_CHECK(reader.read("family", tile_families(), tile.family));
      spec_.tile = tile;
      return ok_status();
    }
    for (const char* key : {"q", "kv", "family"}) {
      if (reader.has(key))
        return reader.refuse(reader.path(key), "stands beside \"classes\"", "give one of the two");
    }
    return read_classes(reader);
  }
  Status read_classes(const ObjectReader& reader) {
    JointTile tile;
    constexpr std::string_view kWanted = "a list of ascending query tiles";
    if (!reader.at("classes").is_array()) return reader.wrong_type("classes", kWanted);
    for (const Json& element : reader.at("classes")) {
      const bool valid = element.is_number_unsigned() && element.get<std::uint64_t>() >= 1 &&
                         element.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxInt) &&
                         (tile.classes.empty() || element.get<int>() > tile.classes.back());
      if (!valid) return reader.wrong_type("classes", kWanted);
      tile.classes.push_back(element.get<int>());
    }
    spec_.tile = std::move(tile);
    return ok_status();
  }

  Status read_variant(const ObjectReader& top) {
    if (spec_.kernel == KernelKind::kAppendRope) ATTNLOOM_CHECK(top.require("variant"));
    if (!top.has("variant")) return ok_status();
    ATTNLOOM_TRY(const ObjectReader reader, ObjectReader::open(document_, top.at("variant"),
                                                               top.path("variant"), kVariantKeys));
    ATTNLOOM_CHECK(refuse_unused(reader, kVariantKeys, "variant."));
    Variant& variant = spec_.variant;
    ATTNLOOM_CHECK(reader.read("name", variant.name));
    ATTNLOOM_CHECK(read_mask(reader));
    ATTNLOOM_CHECK(read_params(reader));
    ATTNLOOM_CHECK(reader.read("softmax", variant.softmax));
    ATTNLOOM_CHECK(reader.read("sink", variant.sink));
    ATTNLOOM_CHECK(reader.read("kv_scale", kv_scales(), variant.kv_scale));
    ATTNLOOM_CHECK(read_rope(reader));
    for (const FunctorField& field : functor_fields()) {
      ATTNLOOM_CHECK(reader.read(field.json, variant.*field.text));
      if (!reader.has(field.json)) continue;
      own_functors_ = true;
      field_lines_["variant." + std::string(field.json)].json_line =
          document_.line_of(reader.path(field.json));
    }
    ATTNLOOM_CHECK(read_compose(reader));
    return with_place(top, finish_variant(reader, top.path("variant")));
  }

  Status finish_variant(const ObjectReader& reader, const std::string& path) {
    composed_ = spec_.variant.compose;
    const OwnFields given{reader.has("softmax"), reader.has("kv_scale")};
    ATTNLOOM_TRY(spec_.variant,
                 compose_variant(std::move(spec_.variant), given, path, field_lines_));
    return check_variant(spec_.variant, path);
  }

  // The same error with the line of its path.
  static Status with_place(const ObjectReader& top, const Status& error) {
    if (error.ok()) return error;
    Status placed = top.refuse(error.path, error.cause, error.remedy);
    placed.code = error.code;
    return placed;
  }

  Status read_rope(const ObjectReader& variant) {
    if (spec_.kernel != KernelKind::kAppendRope) return ok_status();
    ATTNLOOM_CHECK(variant.require("rope"));
    ATTNLOOM_TRY(const ObjectReader reader, ObjectReader::open(document_, variant.at("rope"),
                                                               variant.path("rope"), kRopeKeys));
    Rope rope;
    rope.rotary_dim = spec_.head_dim.qk;
    ATTNLOOM_CHECK(reader.require("style"));
    ATTNLOOM_CHECK(reader.read("style", rope_styles(), rope.style));
    ATTNLOOM_CHECK(reader.read("rotary_dim", 1, kMaxInt, rope.rotary_dim));
    spec_.variant.rope = rope;
    return ok_status();
  }

  Status read_mask(const ObjectReader& variant) {
    if (!variant.has("mask")) return ok_status();
    ATTNLOOM_TRY(const ObjectReader reader, ObjectReader::open(document_, variant.at("mask"),
                                                               variant.path("mask"), kMaskKeys));
    Mask& mask = spec_.variant.mask;
    ATTNLOOM_CHECK(reader.read("causal", mask.causal));
    ATTNLOOM_CHECK(reader.read("custom", mask.custom));
    if (!reader.has("window_left")) return ok_status();
    if (reader.at("window_left") == "runtime") {
      mask.window_left = std::nullopt;
      return ok_status();
    }
    if (!reader.at("window_left").is_number_integer()) {
      return reader.wrong_type("window_left", "\"runtime\" or an integer, -1 for no window");
    }
    int window = -1;
    ATTNLOOM_CHECK(reader.read("window_left", -1, kMaxInt, window));
    mask.window_left = window;
    return ok_status();
  }

  Status read_params(const ObjectReader& variant) {
    if (!variant.has("params")) return ok_status();
    const Json& list = variant.at("params");
    if (!list.is_array()) return variant.wrong_type("params", "a list of {\"name\", \"type\"}");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string path = variant.path("params") + "[" + std::to_string(i) + "]";
      ATTNLOOM_TRY(const ObjectReader reader,
                   ObjectReader::open(document_, list[i], path, kParamKeys));
      for (const std::string_view key : kParamKeys) ATTNLOOM_CHECK(reader.require(key));
      Param param;
      ATTNLOOM_CHECK(reader.read("name", param.name));
      ATTNLOOM_CHECK(reader.read("type", param_types(), param.type));
      spec_.variant.params.push_back(std::move(param));
    }
    return ok_status();
  }

  Status read_compose(const ObjectReader& variant) {
    if (!variant.has("compose")) return ok_status();
    const Json& list = variant.at("compose");
    if (!list.is_array()) return variant.wrong_type("compose", "a list of names");
    for (const Json& name : list) {
      if (!name.is_string()) return variant.wrong_type("compose", "a list of names");
      spec_.variant.compose.push_back(name.get<std::string>());
    }
    return ok_status();
  }

  const JsonDocument& document_;
  std::string root_;
  Spec spec_;
  FieldOrigins field_lines_;
  std::vector<std::string> composed_;
  bool own_functors_ = false;
};

// The value at `path` ("$.cases[2].spec"), or null. Keys that hold a dot or bracket cannot be
// named.
const Json* find_value(const Json& top, std::string_view path) {
  const Json* value = &top;
  std::size_t at = 1;  // behind the $
  while (at < path.size()) {
    const bool index = path[at] == '[';
    const std::size_t end =
        std::min(index ? path.find(']', at) : path.find_first_of(".[", at + 1), path.size());
    const std::string step(path.substr(at + 1, end - at - 1));
    if (index) {
      const std::size_t i = std::strtoul(step.c_str(), nullptr, 10);
      if (!value->is_array() || i >= value->size()) return nullptr;
      value = &(*value)[i];
    } else {
      if (!value->is_object() || !value->contains(step)) return nullptr;
      value = &(*value)[step];
    }
    at = index ? end + 1 : end;
  }
  return value;
}

}  // namespace

Result<ParsedSpec> parse_spec(const JsonDocument& document, const std::string& root) {
  const Json* value = find_value(document.value, root);
  if (value == nullptr) return spec_error(document, root, "the spec is missing", "");
  return SpecParser(document, root).parse(*value);
}

Result<ParsedSpec> parse_spec(std::string_view json_text) {
  ATTNLOOM_TRY(const JsonDocument document, parse_json(json_text, Code::kSpecInvalid));
  return parse_spec(document, "$");
}

}  // namespace attnloom
