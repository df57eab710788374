// SPDX-License-Identifier: Apache-2.0
#include "spec/compose.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "spec/functor_text.h"
#include "spec/parse.h"
#include "spec/shipped.h"
#include "spec/variant_rules.h"

namespace attnloom {
namespace {

struct Part {
  std::string member;  // empty: the user's own
  std::string path;    // of the member's place in the list, or of the variant
  const Variant* variant = nullptr;
};

Status conflict(std::string path, std::string cause, std::string remedy) {
  return make_error(Code::kSpecInvalid, std::move(path), std::move(cause), std::move(remedy));
}

// What stands around each part of a chained functor but the last, which is its own end. A part is
// the body of a lambda, so its locals and returns stay its own.
struct Chain {
  std::string_view before;
  std::string_view behind;
};

Chain chain_of(std::string_view field) {
  if (field == "logits_transform") return {"logits = [&]() -> float {\n", "\n}();\n"};
  if (field == "output_transform") return {"o = [&]() -> float {\n", "\n}();\n"};
  if (field == "logits_mask") return {"if (![&]() -> bool {\n", "\n}()) return false;\n"};
  if (field == "prelude") return {"", "\n"};
  return {"[&]() -> void {\n", "\n}();\n"};  // row functors
}

// Builds one functor's text and knows which line is whose.
class TextBuilder {
 public:
  explicit TextBuilder(FieldOrigin origin) : origin_(std::move(origin)) {}

  void add(std::string_view glue) { text_ += glue; }
  void add(const Part& part, const std::string& text) {
    const int line = 1 + static_cast<int>(std::count(text_.begin(), text_.end(), '\n'));
    if (part.member.empty()) {
      origin_.own_line = line;
    } else {
      origin_.members.push_back({part.member, line});
    }
    text_ += text;
  }

  std::string text_;
  FieldOrigin origin_;
};

void chain(const FunctorField& field, const std::vector<Part>& parts, TextBuilder& builder) {
  std::vector<const Part*> with;
  for (const Part& part : parts) {
    const std::string& text = part.variant->*field.text;
    // The same helpers stand once.
    const bool repeated =
        field.json == "prelude" && std::any_of(with.begin(), with.end(), [&](const Part* other) {
          return other->variant->prelude == text;
        });
    if (!text.empty() && !repeated) with.push_back(&part);
  }
  const Chain glue = chain_of(field.json);
  for (std::size_t i = 0; i < with.size(); ++i) {
    const bool last = i + 1 == with.size();
    if (!last) builder.add(glue.before);
    builder.add(*with[i], with[i]->variant->*field.text);
    if (!last) builder.add(glue.behind);
  }
}

// A tile is skipped where one mask says so, and full where all do: a mask that says nothing of
// tiles leaves none full.
void join_tile_masks(const std::vector<Part>& parts, TextBuilder& builder) {
  int masks = 0;
  std::vector<const Part*> with;
  for (const Part& part : parts) {
    masks += part.variant->logits_mask.empty() ? 0 : 1;
    if (!part.variant->tile_mask.empty()) with.push_back(&part);
  }
  if (with.empty()) return;
  if (masks == 1) return builder.add(*with[0], with[0]->variant->tile_mask);
  builder.add("return loom::tile_mask_of_all(\n");
  for (const Part* part : with) {
    builder.add(part == with[0] ? "[&]() -> loom::TileMask {\n" : ",\n[&]() -> loom::TileMask {\n");
    builder.add(*part, part->variant->tile_mask);
    builder.add("\n}()");
  }
  if (static_cast<int>(with.size()) < masks) builder.add(",\nloom::TileMask::kPartial");
  builder.add(");");
}

Status join_window(const Part& part, Mask& mask) {
  const std::optional<int>& window = part.variant->mask.window_left;
  if (window == -1) return ok_status();
  if (mask.window_left == -1 || mask.window_left == window) {
    mask.window_left = window;
    return ok_status();
  }
  if (!window || !mask.window_left) {
    const int fixed = window ? *window : *mask.window_left;
    return conflict(part.path,
                    "one window_left is \"runtime\" and another is " + std::to_string(fixed),
                    "give both as \"runtime\", or both as numbers: the smaller one counts");
  }
  mask.window_left = std::min(*mask.window_left, *window);
  return ok_status();
}

Status join_params(const Part& part, std::vector<Param>& params) {
  for (const Param& param : part.variant->params) {
    const auto same = std::find_if(params.begin(), params.end(),
                                   [&](const Param& other) { return other.name == param.name; });
    if (same == params.end()) {
      params.push_back(param);
    } else if (same->type != param.type) {
      return conflict(part.path,
                      "the param \"" + param.name + "\" is " + std::string(json_name(param.type)) +
                          " here and " + std::string(json_name(same->type)) + " before",
                      "rename one of the two, which takes writing that functor out");
    }
  }
  return ok_status();
}

Status join_sink(const Part& part, std::string& sink) {
  if (part.variant->sink.empty()) return ok_status();
  if (sink.empty() || sink == part.variant->sink) {
    sink = part.variant->sink;
    return ok_status();
  }
  return conflict(part.path, "has the sink \"" + part.variant->sink + "\" beside \"" + sink + "\"",
                  "a row has one sink: leave one of them out");
}

// `value`: of the first part that says it.
template <class Value>
Status join_equal(const Part& part, std::string_view key, Value given, std::string_view shown,
                  std::optional<Value>& value) {
  if (!value || *value == given) {
    value = given;
    return ok_status();
  }
  return conflict(part.path,
                  std::string(key) + " is " + std::string(shown) + " here and another one before",
                  "leave one of them out: there is one " + std::string(key));
}

Status join_settings(const std::vector<Part>& parts, const OwnFields& given, Variant& all) {
  std::optional<bool> softmax;
  std::optional<KvScale> kv_scale;
  for (const Part& part : parts) {
    const bool own = part.member.empty();
    const Variant& variant = *part.variant;
    all.mask.causal |= variant.mask.causal;
    all.mask.custom |= variant.mask.custom;
    ATTNLOOM_CHECK(join_window(part, all.mask));
    ATTNLOOM_CHECK(join_params(part, all.params));
    ATTNLOOM_CHECK(join_sink(part, all.sink));
    if (!own || given.softmax) {
      ATTNLOOM_CHECK(join_equal(part, "softmax", variant.softmax,
                                variant.softmax ? "true" : "false", softmax));
    }
    // The shipped variants leave the cache to whoever has one.
    if (own ? given.kv_scale : variant.kv_scale != KvScale::kNone) {
      ATTNLOOM_CHECK(
          join_equal(part, "kv_scale", variant.kv_scale, json_name(variant.kv_scale), kv_scale));
    }
  }
  all.softmax = softmax.value_or(true);
  all.kv_scale = kv_scale.value_or(KvScale::kNone);
  return ok_status();
}

// The shipped variant of that name, if it is one of attention.
std::optional<Variant> shipped_variant(std::string_view name) {
  for (const EmbeddedFile& file : shipped_specs()) {
    if (file.name != std::string(name) + ".json") continue;
    Result<ParsedSpec> parsed = parse_spec(file.text);
    if (!parsed.ok() || parsed->spec.kernel != KernelKind::kAttention) return std::nullopt;
    return std::move(parsed->spec.variant);
  }
  return std::nullopt;
}

Result<std::vector<Variant>> find_members(const Variant& own, const std::string& root) {
  std::vector<Variant> members;
  for (std::size_t i = 0; i < own.compose.size(); ++i) {
    const std::string& name = own.compose[i];
    const std::string path = root + ".compose[" + std::to_string(i) + "]";
    ATTNLOOM_CHECK(check_name(name, path));
    const auto before = own.compose.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(own.compose.begin(), before, name) != before)
      return conflict(path, "\"" + name + "\" is given twice", "name it once");
    std::optional<Variant> found = shipped_variant(name);
    if (!found) {
      const std::string near = nearest_name(name, shipped_variants());
      return conflict(
          path, "\"" + name + "\" is no shipped variant",
          near.empty() ? "examples/specs holds them all" : "did you mean \"" + near + "\"?");
    }
    members.push_back(std::move(*found));
  }
  return members;
}

}  // namespace

std::vector<std::string> shipped_variants() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : shipped_specs()) {
    std::string name(file.name.substr(0, file.name.find('.')));
    if (shipped_variant(name)) names.push_back(std::move(name));
  }
  return names;
}

Result<Variant> compose_variant(Variant own, const OwnFields& given, const std::string& root,
                                FieldOrigins& origins) {
  if (own.compose.empty()) return own;
  // Before they become parts, so that line and column are those of the user's own text.
  for (const FunctorField& field : functor_fields()) {
    if (const std::string& text = own.*field.text; !text.empty())
      ATTNLOOM_CHECK(scan_functor(text, root + "." + std::string(field.json)).status());
  }
  ATTNLOOM_TRY(const std::vector<Variant> members, find_members(own, root));
  std::vector<Part> parts;
  for (std::size_t i = 0; i < members.size(); ++i)
    parts.push_back({own.compose[i], root + ".compose[" + std::to_string(i) + "]", &members[i]});
  parts.push_back({"", root, &own});
  Variant all;
  all.name = own.name;
  ATTNLOOM_CHECK(join_settings(parts, given, all));
  for (const FunctorField& field : functor_fields()) {
    FieldOrigin& origin = origins["variant." + std::string(field.json)];
    TextBuilder builder(origin);
    if (field.json == "tile_mask") {
      join_tile_masks(parts, builder);
    } else {
      chain(field, parts, builder);
    }
    all.*field.text = std::move(builder.text_);
    origin = std::move(builder.origin_);
    if ((all.*field.text).empty()) origins.erase("variant." + std::string(field.json));
  }
  return all;
}

}  // namespace attnloom
