// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "spec/kernel_keys.h"
#include "spec/parse.h"
#include "spec/variant_rules.h"

namespace attnloom {
namespace {

Json layout_to_json(const Layout& layout) {
  Json json{{"kv", json_name(layout.kv)}};
  if (layout.kv == KvLayout::kPaged) json["page_size"] = layout.page_size;
  if (layout.kv == KvLayout::kBsr) json["block"] = {layout.block_rows, layout.block_columns};
  return json;
}

Json tile_to_json(const TileChoice& tile) {
  if (const auto* fixed = std::get_if<FixedTile>(&tile)) {
    Json json{{"q", fixed->q}, {"kv", fixed->kv}};
    if (fixed->family != TileFamily::kMma) json["family"] = json_name(fixed->family);
    return json;
  }
  if (const auto* joint = std::get_if<JointTile>(&tile)) return {{"classes", joint->classes}};
  return "auto";
}

Json variant_to_json(const Variant& variant) {
  Json json{{"name", variant.name},
            {"softmax", variant.softmax},
            {"kv_scale", json_name(variant.kv_scale)}};
  Json& mask = json["mask"];
  mask = {{"causal", variant.mask.causal}, {"custom", variant.mask.custom}};
  if (variant.mask.window_left) {
    mask["window_left"] = *variant.mask.window_left;
  } else {
    mask["window_left"] = "runtime";
  }
  if (variant.rope) {
    json["rope"] = {{"style", json_name(variant.rope->style)},
                    {"rotary_dim", variant.rope->rotary_dim}};
  }
  json["params"] = Json::array();
  for (const Param& param : variant.params) {
    json["params"].push_back({{"name", param.name}, {"type", json_name(param.type)}});
  }
  json["compose"] = variant.compose;
  // An absent text is the default: parse_spec refuses "".
  if (!variant.sink.empty()) json["sink"] = variant.sink;
  for (const FunctorField& field : functor_fields()) {
    if (!(variant.*field.text).empty()) json[std::string(field.json)] = variant.*field.text;
  }
  return json;
}

// parse_spec refuses what the kernel does not use.
void drop_unused(KernelKind kernel, const std::string& prefix, Json& object) {
  for (auto member = object.begin(); member != object.end();) {
    const std::string key = prefix + member.key();
    if (!kernel_uses(kernel, key)) {
      member = object.erase(member);
      continue;
    }
    if (prefix.empty() && member->is_object()) drop_unused(kernel, key + ".", *member);
    ++member;
  }
}

}  // namespace

Json spec_to_json(const Spec& spec) {
  Json json{{"attnloom", kSpecVersion}, {"kernel", json_name(spec.kernel)}};
  if (spec.target) json["target"] = spec.target->name();
  json["task"] = json_name(spec.task);
  json["dtype"] = {{"q", json_name(spec.dtype.q)},
                   {"kv", json_name(spec.dtype.kv)},
                   {"o", json_name(spec.dtype.o)}};
  json["head_dim"] = {{"qk", spec.head_dim.qk}, {"vo", spec.head_dim.vo}};
  json["group_size"] = spec.group_size;
  json["layout"] = layout_to_json(spec.layout);
  json["tile"] = tile_to_json(spec.tile);
  json["variant"] = variant_to_json(spec.variant);
  drop_unused(spec.kernel, "", json);
  return json;
}

}  // namespace attnloom
