// SPDX-License-Identifier: Apache-2.0
//
// attnloom.hpp - C++17 over attnloom.h, header-only: handles that destroy themselves, and errors as
// exceptions.
//
// Every call that fails throws attnloom::Error; nothing else is added to what attnloom.h says.
// Handles are movable, not copyable, and must be destroyed after what was made from them, as in C:
// declare the Context first. Threads: as the handles of attnloom.h. Device memory is given back
// when its Memory ends; launches that use it must be over by then.
//
//   attnloom::Context context;                       // the GPU, or the simulator where there is
//   none attnloom::Kernel kernel(context, spec_json); attnloom::Plan plan(kernel, limits);
//   ... plan.bind(...), then once a step plan.update(workload), once a layer plan.run(tensors)
#ifndef ATTNLOOM_ATTNLOOM_HPP_
#define ATTNLOOM_ATTNLOOM_HPP_

#include <attnloom/attnloom.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnloom {
inline namespace cxx {

// What alm_error holds, kept by value.
class Error : public std::exception {
 public:
  // Takes over `error`, which may be NULL.
  Error(alm_code code, alm_error* error) : code_(code), name_(alm_code_name(code)) {
    if (error) {
      path_ = error->path;
      cause_ = error->cause;
      remedy_ = error->remedy;
      retryable_ = error->retryable != 0;
      alm_error_free(error);
    }
    text_ = name_ + (path_.empty() ? "" : " at " + path_) + ": " + cause_;
    if (!remedy_.empty()) text_ += " (" + remedy_ + ")";
  }
  const char* what() const noexcept override { return text_.c_str(); }
  alm_code code() const { return code_; }
  const std::string& name() const { return name_; }      // "SPEC_INVALID"
  const std::string& path() const { return path_; }      // the caller's field
  const std::string& cause() const { return cause_; }    // one line
  const std::string& remedy() const { return remedy_; }  // one line or ""
  bool retryable() const { return retryable_; }

 private:
  alm_code code_;
  std::string name_, path_, cause_, remedy_, text_;
  bool retryable_ = false;
};

namespace detail {

// call(error) is a function of attnloom.h with its last parameter open.
template <class Call>
void check(Call&& call) {
  alm_error* error = nullptr;
  const alm_code code = call(&error);
  if (code != ALM_OK) throw Error(code, error);
}

template <class Call>
std::string text(Call&& call) {
  alm_text* text = nullptr;
  check([&](alm_error** error) { return call(&text, error); });
  const std::unique_ptr<alm_text, void (*)(alm_text*)> owner(text, alm_text_free);
  return std::string(text->data, text->bytes);
}

template <class Handle, void (*destroy)(Handle*)>
struct Destroy {
  void operator()(Handle* handle) const { destroy(handle); }
};

template <class Handle, void (*destroy)(Handle*)>
using Owner = std::unique_ptr<Handle, Destroy<Handle, destroy>>;

}  // namespace detail

// A public struct with struct_bytes set and all else zero.
template <class Struct>
Struct zeroed() {
  Struct made = {};
  made.struct_bytes = sizeof(Struct);
  return made;
}

// A tensor in dense order (the last dimension is contiguous). At most five dimensions.
inline alm_tensor dense_tensor(void* data, alm_dtype dtype,
                               std::initializer_list<std::int64_t> shape) {
  alm_tensor tensor = {};
  tensor.data = data;
  tensor.dtype = dtype;
  for (const std::int64_t extent : shape)
    if (tensor.rank < 5) tensor.shape[tensor.rank++] = extent;
  std::int64_t stride = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

// A view of a DLTensor of the DLPack ABI, which stays the owner.
inline alm_tensor tensor_from_dlpack(const void* dl_tensor) {
  alm_tensor tensor = {};
  detail::check(
      [&](alm_error** error) { return alm_tensor_from_dlpack(dl_tensor, &tensor, error); });
  return tensor;
}

// A view of an int32 array on the host.
inline alm_index_array index_array(const std::int32_t* data, std::size_t length) {
  return {data, static_cast<std::int64_t>(length), 1, ALM_I32};
}
inline alm_index_array index_array(const std::vector<std::int32_t>& values) {
  return index_array(values.data(), values.size());
}

// Device memory. Keeps no reference to more than the context's handle.
class Memory {
 public:
  Memory(alm_context* context, std::size_t bytes, const char* label)
      : context_(context), bytes_(bytes) {
    detail::check([&](alm_error** error) {
      return alm_memory_allocate(context, bytes, label, &address_, error);
    });
  }
  Memory(Memory&& other) noexcept
      : context_(other.context_),
        bytes_(other.bytes_),
        address_(std::exchange(other.address_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(bytes_, other.bytes_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~Memory() {
    if (address_) alm_memory_free(context_, address_, nullptr);
  }

  void* address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  void copy_in(const void* from, std::size_t bytes) {
    detail::check([&](alm_error** error) {
      return alm_memory_copy_in(context_, address_, from, bytes, error);
    });
  }
  void copy_out(void* to, std::size_t bytes) const {
    detail::check([&](alm_error** error) {
      return alm_memory_copy_out(context_, to, address_, bytes, error);
    });
  }

 private:
  alm_context* context_;
  std::size_t bytes_;
  void* address_ = nullptr;
};

// Page-locked host memory, for Plan::bind. Copies from it must be over when it ends.
class HostMemory {
 public:
  HostMemory(alm_context* context, std::size_t bytes) : context_(context) {
    detail::check([&](alm_error** error) {
      return alm_memory_allocate_host(context, bytes, &address_, error);
    });
  }
  HostMemory(HostMemory&& other) noexcept
      : context_(other.context_), address_(std::exchange(other.address_, nullptr)) {}
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~HostMemory() {
    if (address_) alm_memory_free_host(context_, address_, nullptr);
  }

  void* address() const { return address_; }

 private:
  alm_context* context_;
  void* address_ = nullptr;
};

class Context {
 public:
  Context() : Context(zeroed<alm_context_options>()) {}
  explicit Context(const alm_context_options& options) {
    alm_context* made = nullptr;
    detail::check([&](alm_error** error) { return alm_context_create(&options, &made, error); });
    handle_.reset(made);
  }
  alm_context* get() const { return handle_.get(); }

  std::string describe() const {
    return detail::text([&](alm_text** text, alm_error** error) {
      return alm_context_describe(get(), text, error);
    });
  }
  std::string statistics(alm_statistics_format format = ALM_STATISTICS_JSON) const {
    return detail::text([&](alm_text** text, alm_error** error) {
      return alm_context_statistics(get(), format, text, error);
    });
  }
  // Compiles from now on warn or fail.
  void freeze(alm_freeze how) {
    detail::check([&](alm_error** error) { return alm_context_freeze(get(), how, error); });
  }
  // Throws what the simulator found since the last call.
  void synchronize(void* stream = nullptr) {
    detail::check([&](alm_error** error) { return alm_synchronize(get(), stream, error); });
  }
  Memory allocate(std::size_t bytes, const char* label) { return Memory(get(), bytes, label); }
  template <class Value>
  Memory upload(const std::vector<Value>& values, const char* label) {
    Memory memory(get(), values.size() * sizeof(Value), label);
    memory.copy_in(values.data(), memory.bytes());
    return memory;
  }

 private:
  detail::Owner<alm_context, alm_context_destroy> handle_;
};

// Kernels on their way, of Kernel::prepare_async. Cancels what is not over when it ends, and is
// destroyed before its Context.
class Pending {
 public:
  explicit Pending(alm_pending* owned) : handle_(owned) {}
  alm_pending* get() const { return handle_.get(); }

  // Throws the error of the first kernel that is not there.
  void wait() {
    detail::check([&](alm_error** error) { return alm_pending_wait(get(), -1, nullptr, error); });
  }
  // False while it is not over after `timeout_ms`.
  bool wait_for(std::int64_t timeout_ms) {
    int over = 0;
    alm_error* error = nullptr;
    const alm_code code = alm_pending_wait(get(), timeout_ms, &over, &error);
    if (code == ALM_OK || over != 0) {
      if (code != ALM_OK) throw Error(code, error);
      return true;
    }
    alm_error_free(error);
    return false;
  }
  void cancel() { alm_pending_cancel(get()); }

 private:
  detail::Owner<alm_pending, alm_pending_destroy> handle_;
};

class Kernel {
 public:
  Kernel(Context& context, std::string_view spec_json) {
    alm_kernel* made = nullptr;
    detail::check([&](alm_error** error) {
      return alm_kernel_open(context.get(), spec_json.data(), spec_json.size(), &made, error);
    });
    handle_.reset(made);
  }
  alm_kernel* get() const { return handle_.get(); }

  void prepare() {
    detail::check([&](alm_error** error) { return alm_kernel_prepare(get(), error); });
  }
  // Compiles behind the caller's back; prepare() afterwards only loads.
  Pending prepare_async(const alm_prepare_options& options = zeroed<alm_prepare_options>()) {
    alm_pending* made = nullptr;
    detail::check(
        [&](alm_error** error) { return alm_kernel_prepare_async(get(), &options, &made, error); });
    return Pending(made);
  }
  std::string describe() const {
    return detail::text([&](alm_text** text, alm_error** error) {
      return alm_kernel_describe(get(), text, error);
    });
  }
  // Of a spec of "kernel": "merge".
  void merge(const alm_merge& tensors, void* stream = nullptr) {
    detail::check([&](alm_error** error) { return alm_merge_run(get(), &tensors, stream, error); });
  }
  // Of a spec of "kernel": "append" or "append_rope".
  void append(const alm_append& tensors, void* stream = nullptr) {
    detail::check(
        [&](alm_error** error) { return alm_append_run(get(), &tensors, stream, error); });
  }
  // Of a spec of "kernel": "page_copy".
  void page_copy(const alm_page_copy& tensors, void* stream = nullptr) {
    detail::check(
        [&](alm_error** error) { return alm_page_copy_run(get(), &tensors, stream, error); });
  }

 private:
  detail::Owner<alm_kernel, alm_kernel_destroy> handle_;
};

class Plan {
 public:
  Plan(Kernel& kernel, const alm_plan_limits& limits) : sizes_(zeroed<alm_plan_sizes>()) {
    alm_plan* made = nullptr;
    detail::check([&](alm_error** error) {
      return alm_plan_create(kernel.get(), &limits, &made, &sizes_, error);
    });
    handle_.reset(made);
  }
  alm_plan* get() const { return handle_.get(); }
  const alm_plan_sizes& sizes() const { return sizes_; }

  void bind(void* workspace, std::size_t workspace_bytes, void* staging,
            std::size_t staging_bytes) {
    detail::check([&](alm_error** error) {
      return alm_plan_bind(get(), workspace, workspace_bytes, staging, staging_bytes, error);
    });
  }
  void update(const alm_workload& workload, void* stream = nullptr) {
    detail::check(
        [&](alm_error** error) { return alm_plan_update(get(), &workload, stream, error); });
  }
  void check(const alm_workload& workload, void* stream = nullptr) const {
    detail::check(
        [&](alm_error** error) { return alm_plan_check(get(), &workload, stream, error); });
  }
  void run(const alm_attention& tensors, void* stream = nullptr) {
    detail::check([&](alm_error** error) { return alm_run(get(), &tensors, stream, error); });
  }
  std::string describe() const {
    return detail::text(
        [&](alm_text** text, alm_error** error) { return alm_plan_describe(get(), text, error); });
  }

 private:
  alm_plan_sizes sizes_;
  detail::Owner<alm_plan, alm_plan_destroy> handle_;
};

}  // namespace cxx
}  // namespace attnloom

#endif  // ATTNLOOM_ATTNLOOM_HPP_
