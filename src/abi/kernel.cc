// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "abi/boundary.h"
#include "abi/convert.h"
#include "abi/handles.h"
#include "engine/row_launch.h"

using namespace attnloom;

alm_code alm_kernel_open(alm_context* context, const char* spec_json, size_t spec_bytes,
                         alm_kernel** kernel, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    *kernel = nullptr;
    ATTNLOOM_CHECK(check_given(context, "context"));
    ATTNLOOM_CHECK(check_given(spec_json, "spec_json"));
    ATTNLOOM_TRY(auto kernels, context->engine->open(std::string_view(spec_json, spec_bytes)));
    *kernel = new alm_kernel{std::move(kernels)};
    return ok_status();
  });
}

void alm_kernel_destroy(alm_kernel* kernel) {
  delete kernel;
}

alm_code alm_kernel_prepare(alm_kernel* kernel, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    return kernel->kernels->prepare();
  });
}

alm_code alm_kernel_describe(alm_kernel* kernel, alm_text** json, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    ATTNLOOM_CHECK(check_given(json, "json"));
    return give_text(kernel->kernels->describe().dump(), json);
  });
}

alm_code alm_merge_run(alm_kernel* kernel, const alm_merge* tensors, void* stream,
                       alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    alm_merge read;
    ATTNLOOM_CHECK(read_struct(tensors, "tensors", &read));
    MergeTensors views;
    views.o_in = tensor_view(read.o_in);
    views.lse_in = tensor_view(read.lse_in);
    views.o = tensor_view(read.o);
    views.lse = tensor_view(read.lse);
    return run_merge(*kernel->kernels, views, stream);
  });
}

alm_code alm_append_run(alm_kernel* kernel, const alm_append* tensors, void* stream,
                        alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    AppendTensors views;
    ATTNLOOM_CHECK(convert_append(tensors, &views));
    return run_append(*kernel->kernels, views, stream);
  });
}

alm_code alm_page_copy_run(alm_kernel* kernel, const alm_page_copy* tensors, void* stream,
                           alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    PageCopyTensors views;
    ATTNLOOM_CHECK(convert_page_copy(tensors, &views));
    return run_page_copy(*kernel->kernels, views, stream);
  });
}
