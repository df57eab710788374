// SPDX-License-Identifier: Apache-2.0
#include "abi/boundary.h"

#include <memory>

namespace attnloom {
namespace {

// `view` comes first: the caller's alm_error* is its address.
struct ErrorBox {
  alm_error view = {};
  std::string path;
  std::string cause;
  std::string remedy;
};

struct TextBox {
  alm_text view = {};
  std::string text;
};

// For the one failure that cannot allocate its own report; alm_error_free knows it.
const alm_error out_of_memory_error = {
    ALM_OUT_OF_MEMORY, "OUT_OF_MEMORY", "", "no memory on the host", "", 1};

}  // namespace

alm_code report_out_of_memory(alm_error** error) noexcept {
  if (error) *error = const_cast<alm_error*>(&out_of_memory_error);
  return ALM_OUT_OF_MEMORY;
}

alm_code report(alm_error** error, const Status& status) noexcept {
  if (error) *error = nullptr;
  if (status.ok()) return ALM_OK;
  const alm_code code = static_cast<alm_code>(status.code);
  if (!error) return code;
  try {
    auto box = std::make_unique<ErrorBox>();
    box->path = status.path;
    box->cause = status.cause;
    box->remedy = status.remedy;
    box->view = {code,
                 code_name(status.code).data(),
                 box->path.c_str(),
                 box->cause.c_str(),
                 box->remedy.c_str(),
                 is_retryable(status.code) ? 1 : 0};
    *error = &box.release()->view;
  } catch (const std::bad_alloc&) {
    return report_out_of_memory(error);
  }
  return code;
}

Status argument_error(std::string path, std::string cause, std::string remedy) {
  return make_error(Code::kArgumentInvalid, std::move(path), std::move(cause), std::move(remedy));
}

Status check_given(const void* argument, const char* name) {
  return argument ? ok_status() : argument_error(name, "must not be NULL");
}

Status give_text(const std::string& text, alm_text** out) {
  auto box = std::make_unique<TextBox>();
  box->text = text;
  box->view = {box->text.c_str(), box->text.size()};
  *out = &box.release()->view;
  return ok_status();
}

}  // namespace attnloom

using namespace attnloom;

void alm_error_free(alm_error* error) {
  if (error != &out_of_memory_error) delete reinterpret_cast<ErrorBox*>(error);
}

void alm_text_free(alm_text* text) {
  delete reinterpret_cast<TextBox*>(text);
}

int alm_abi_version(void) {
  return ALM_ABI_VERSION;
}

const char* alm_version(void) {
  return ATTNLOOM_VERSION;
}

const char* alm_code_name(alm_code code) {
  return code_name(static_cast<Code>(code)).data();
}
