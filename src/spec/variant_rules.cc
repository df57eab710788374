// SPDX-License-Identifier: Apache-2.0
#include "spec/variant_rules.h"

#include <cstddef>
#include <set>

#include "spec/functor_text.h"

namespace attnloom {
namespace {

constexpr int kMaxScalarParams = 16;
constexpr int kMaxPointerParams = 8;

constexpr FunctorField kFunctorFields[] = {
    {"prelude", &Variant::prelude, false, false},
    {"logits_transform", &Variant::logits_transform, true, true},
    {"logits_mask", &Variant::logits_mask, true, true},
    {"tile_mask", &Variant::tile_mask, true, true},
    {"output_transform", &Variant::output_transform, true, true},
    {"query_transform", &Variant::query_transform, true, false},
    {"key_transform", &Variant::key_transform, true, false},
    {"value_transform", &Variant::value_transform, true, false},
};

Status check_params(const std::vector<Param>& params, const std::string& root) {
  std::set<std::string_view> seen;
  int scalars = 0;
  int pointers = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const std::string path = root + ".params[" + std::to_string(i) + "]";
    ATTNLOOM_CHECK(check_param_name(params[i].name, path + ".name"));
    if (!seen.insert(params[i].name).second) {
      return make_error(Code::kSpecInvalid, path + ".name",
                        "\"" + params[i].name + "\" is given twice", "rename one of the two");
    }
    ++(is_pointer(params[i].type) ? pointers : scalars);
    if (scalars > kMaxScalarParams || pointers > kMaxPointerParams) {
      return make_error(Code::kSpecUnsupported, path,
                        "more than " + std::to_string(kMaxScalarParams) + " scalar or " +
                            std::to_string(kMaxPointerParams) + " pointer params",
                        "put scalars into one array and pass its pointer");
    }
  }
  return ok_status();
}

Status check_sink(const Variant& variant, const std::string& root) {
  if (variant.sink.empty()) return ok_status();
  for (const Param& param : variant.params) {
    if (param.name == variant.sink && param.type == ParamType::kPtrF32) return ok_status();
  }
  ATTNLOOM_CHECK(check_name(variant.sink, root + ".sink"));
  return make_error(Code::kSpecInvalid, root + ".sink",
                    "\"" + variant.sink + "\" is no param of type ptr<f32>",
                    "declare it in params");
}

}  // namespace

std::span<const FunctorField> functor_fields() {
  return kFunctorFields;
}

Status check_variant(const Variant& variant, const std::string& root) {
  ATTNLOOM_CHECK(check_name(variant.name, root + ".name"));
  ATTNLOOM_CHECK(check_params(variant.params, root));
  for (std::size_t i = 0; i < variant.compose.size(); ++i) {
    ATTNLOOM_CHECK(check_name(variant.compose[i], root + ".compose[" + std::to_string(i) + "]"));
  }
  ATTNLOOM_CHECK(check_sink(variant, root));
  std::set<std::string, std::less<>> used;
  if (!variant.sink.empty()) used.insert(variant.sink);
  bool has_body = false;
  for (const FunctorField& field : kFunctorFields) {
    const std::string& text = variant.*field.text;
    if (text.empty()) continue;
    const std::string path = root + "." + std::string(field.json);
    ATTNLOOM_TRY(FunctorTokens tokens, scan_functor(text, path));
    if (field.returns_value && tokens.identifiers.count("return") == 0) {
      return make_error(Code::kSpecInvalid, path, "the text returns nothing",
                        "end it with a return statement");
    }
    if (!field.is_body) continue;
    has_body = true;
    used.merge(tokens.identifiers);
  }
  if (!variant.tile_mask.empty() && variant.logits_mask.empty()) {
    return make_error(Code::kSpecInvalid, root + ".tile_mask",
                      "stands without logits_mask, of whose tiles it speaks",
                      "add logits_mask, or remove it");
  }
  if (!variant.prelude.empty() && !has_body) {
    return make_error(Code::kSpecInvalid, root + ".prelude",
                      "there is no functor that could use the prelude",
                      "remove it or add a functor");
  }
  for (std::size_t i = 0; i < variant.params.size(); ++i) {
    if (used.count(variant.params[i].name) > 0) continue;
    return make_error(Code::kSpecInvalid, root + ".params[" + std::to_string(i) + "]",
                      "no functor uses the param \"" + variant.params[i].name + "\"",
                      "use it or remove it");
  }
  return ok_status();
}

}  // namespace attnloom
