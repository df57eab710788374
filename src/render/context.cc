// SPDX-License-Identifier: Apache-2.0
#include "render/context.h"

#include <cstddef>
#include <string_view>

#include "spec/shares.h"
#include "spec/wgmma_tiles.h"

namespace attnloom {
namespace {

std::string text_of(bool value) {
  return value ? "true" : "false";
}

// A section that is rendered once with {{{text}}} or, without a functor, not at all.
std::vector<TemplateContext> functor(const std::string& text) {
  if (text.empty()) return {};
  return {TemplateContext{{{"text", text}}, {}}};
}

// Whether a row functor may ask for sums of squares: where its text never names them, no pass sums.
bool sums_squares(const std::string& text) {
  return text.find("sum_of_squares") != std::string::npos;
}

// Prefix tiles have up to kMostPrefixRows query rows, so there is never one in decode_simt's single
// row or in the class for long prefills alone.
bool shares_prefixes(const Spec& spec, const KernelChoice& choice) {
  return choice.family == "attention_mma" && choice.classes.front().q <= kMostPrefixRows &&
         may_share_prefixes(spec);
}

// The accessor of the param that holds the sinks.
std::vector<TemplateContext> sink(const std::string& param) {
  if (param.empty()) return {};
  return {TemplateContext{{{"name", param}}, {}}};
}

// `auto` where a transform has one result, so that it may be a type which leaves a factor to the
// softmax (Scaled in loom/logit.cuh); several results must convert to one type.
std::vector<TemplateContext> logits_transform(const std::string& text) {
  std::vector<TemplateContext> contexts = functor(text);
  const std::size_t first = text.find("return");
  const bool is_one = first != std::string::npos && text.find("return", first + 1) == text.npos;
  for (TemplateContext& context : contexts)
    context.values.emplace_back("result", is_one ? "auto" : "float");
  return contexts;
}

std::vector<TemplateContext> tile_classes(const std::vector<TileClass>& classes) {
  std::vector<TemplateContext> list;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    list.push_back({{{"index", std::to_string(i)},
                     {"q", std::to_string(classes[i].q)},
                     {"kv", std::to_string(classes[i].kv)},
                     {"stages", std::to_string(classes[i].stages)}},
                    {}});
  }
  return list;
}

// How a param gets its value: scalars from the plan block, pointers from the launch, each numbered
// in the spec's order.
std::string initial_value(const Param& param, int& scalars, int& pointers) {
  if (is_pointer(param.type)) {
    return "static_cast<" + std::string(device_name(param.type)) + ">(args.pointers[" +
           std::to_string(pointers++) + "])";
  }
  return "loom::scalar_" + std::string(json_name(param.type)) + "(plan.scalars[" +
         std::to_string(scalars++) + "])";
}

// The type of the member that functors see (loom/types.cuh on ScalarF32).
std::string member_type(ParamType type) {
  if (type == ParamType::kF32) return "loom::ScalarF32";
  return std::string(device_name(type)) + (is_pointer(type) ? " __restrict__" : "");
}

std::vector<TemplateContext> param_list(const std::vector<Param>& params) {
  std::vector<TemplateContext> list;
  int scalars = 0;
  int pointers = 0;
  for (const Param& param : params) {
    list.push_back({{{"type", member_type(param.type)},
                     {"name", param.name},
                     {"separator", list.empty() ? "\n      : " : ",\n        "},
                     {"value", initial_value(param, scalars, pointers)}},
                    {}});
  }
  return list;
}

// The kernel that a template ends in: its file, its entry, its one parameter and the call.
void add_kernel(TemplateContext& context, const std::string& file, const std::string& entry,
                const std::string& arguments, const std::string& call) {
  context.values.insert(
      context.values.end(),
      {{"kernel_file", file}, {"entry", entry}, {"arguments", arguments}, {"call", call}});
}

TemplateContext variant_context(const Spec& spec, const KernelChoice& choice) {
  const bool paged = spec.layout.kv == KvLayout::kPaged;
  const bool bsr = spec.layout.kv == KvLayout::kBsr;
  const std::optional<int>& window = spec.variant.mask.window_left;
  const Variant& variant = spec.variant;
  TemplateContext context;
  context.values = {
      {"element", std::string(device_name(spec.dtype.q))},
      {"kv_element", std::string(device_name(spec.dtype.kv))},
      {"kv_scale", std::string(device_name(variant.kv_scale))},
      {"head_dim_qk", std::to_string(spec.head_dim.qk)},
      {"head_dim_vo", std::to_string(spec.head_dim.vo)},
      {"group_size", std::to_string(spec.group_size)},
      {"paged", text_of(paged)},
      {"page_size", std::to_string(paged ? spec.layout.page_size : 1)},
      {"padded", text_of(spec.layout.kv == KvLayout::kPadded)},
      {"bsr", text_of(bsr)},
      {"block_columns", std::to_string(bsr ? spec.layout.block_columns : 1)},
      {"causal", text_of(variant.mask.causal)},
      {"window", text_of(!window || *window >= 0)},
      {"window_runtime", text_of(!window)},
      {"window_left", std::to_string(window.value_or(-1))},
      {"custom_mask", text_of(variant.mask.custom)},
      {"softmax", text_of(variant.softmax)},
      {"has_logits_transform", text_of(!variant.logits_transform.empty())},
      {"has_logits_mask", text_of(!variant.logits_mask.empty())},
      {"has_tile_mask", text_of(!variant.tile_mask.empty())},
      {"has_sink", text_of(!variant.sink.empty())},
      {"has_output_transform", text_of(!variant.output_transform.empty())},
      {"has_query_transform", text_of(!variant.query_transform.empty())},
      {"has_key_transform", text_of(!variant.key_transform.empty())},
      {"has_value_transform", text_of(!variant.value_transform.empty())},
      {"query_squares", text_of(sums_squares(variant.query_transform))},
      {"key_squares", text_of(sums_squares(variant.key_transform))},
      {"value_squares", text_of(sums_squares(variant.value_transform))},
      {"shares", text_of(shares_prefixes(spec, choice))},
      {"class_count", std::to_string(choice.classes.size())},
      {"threads", std::to_string(choice.threads)},
      {"min_ctas_per_sm", std::to_string(choice.min_ctas_per_sm)},
      {"shared_bytes", std::to_string(choice.shared_bytes)},
  };
  context.lists = {
      {"classes", tile_classes(choice.classes)},
      {"prelude", functor(variant.prelude)},
      {"params", param_list(variant.params)},
      {"logits_transform", logits_transform(variant.logits_transform)},
      {"logits_mask", functor(variant.logits_mask)},
      {"tile_mask", functor(variant.tile_mask)},
      {"output_transform", functor(variant.output_transform)},
      {"query_transform", functor(variant.query_transform)},
      {"key_transform", functor(variant.key_transform)},
      {"value_transform", functor(variant.value_transform)},
      {"sink", sink(variant.sink)},
  };
  return context;
}

}  // namespace

TemplateContext attention_context(const Spec& spec, const KernelChoice& choice) {
  TemplateContext context = variant_context(spec, choice);
  add_kernel(
      context, choice.family + ".cuh", "attention",
      choice.family == kWgmmaFamily ? "MappedAttentionArgs" : "AttentionArgs",
      choice.family + "<loom_rendered::Config, loom_rendered::TileClass, loom_rendered::Variant>");
  return context;
}

TemplateContext functors_context(const Spec& spec, const KernelChoice& choice) {
  TemplateContext context = variant_context(spec, choice);
  add_kernel(context, "functors.cuh", "functors", "FunctorArgs",
             "functors<loom_rendered::Config, loom_rendered::Variant>");
  return context;
}

TemplateContext merge_context(const Spec& spec, const KernelChoice& choice) {
  TemplateContext context;
  context.values = {
      {"element", std::string(device_name(spec.dtype.o))},
      {"head_dim_vo", std::to_string(spec.head_dim.vo)},
      {"threads", std::to_string(choice.threads)},
      {"min_ctas_per_sm", std::to_string(choice.min_ctas_per_sm)},
  };
  return context;
}

TemplateContext append_context(const Spec& spec, const KernelChoice& choice) {
  const KvScale scale = spec.variant.kv_scale;
  const std::optional<Rope>& rope = spec.variant.rope;
  TemplateContext context;
  context.values = {
      {"element", std::string(device_name(spec.dtype.q))},
      {"cache_element", std::string(device_name(spec.dtype.kv))},
      {"head_dim_qk", std::to_string(spec.head_dim.qk)},
      {"head_dim_vo", std::to_string(spec.head_dim.vo)},
      {"page_size", std::to_string(spec.layout.page_size)},
      {"scaled", text_of(scale != KvScale::kNone)},
      {"scale_per_head", text_of(scale == KvScale::kHead)},
      {"rotary_dim", std::to_string(rope ? rope->rotary_dim : 0)},
      {"neox", text_of(rope && rope->style == RopeStyle::kNeox)},
      {"threads", std::to_string(choice.threads)},
      {"min_ctas_per_sm", std::to_string(choice.min_ctas_per_sm)},
      {"entry", std::string(json_name(spec.kernel))},
      {"arguments", rope ? "AppendRopeArgs" : "AppendArgs"},
  };
  return context;
}

TemplateContext page_copy_context(const Spec& spec, const KernelChoice& choice) {
  TemplateContext context;
  context.values = {
      {"element_bytes", std::to_string(bytes_of(spec.dtype.kv))},
      {"head_dim_qk", std::to_string(spec.head_dim.qk)},
      {"head_dim_vo", std::to_string(spec.head_dim.vo)},
      {"page_size", std::to_string(spec.layout.page_size)},
      {"threads", std::to_string(choice.threads)},
      {"min_ctas_per_sm", std::to_string(choice.min_ctas_per_sm)},
  };
  return context;
}

}  // namespace attnloom
