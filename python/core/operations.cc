// SPDX-License-Identifier: Apache-2.0
#include "python/core/operations.h"

#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "python/core/refusal.h"
#include "python/core/tensors.h"

namespace attnloom::python {
namespace {

void* stream_of(std::uintptr_t stream) {
  return reinterpret_cast<void*>(stream);
}

std::intptr_t address_of(const alm_tensor& tensor) {
  return reinterpret_cast<std::intptr_t>(tensor.data);
}

// One or two tensors of one shape as one of rank + 1: their distance is its first stride. Three
// need not be equally far apart, least of all where the simulator copies them to.
alm_tensor stacked(const std::vector<alm_tensor>& states, const std::deque<std::string>& names) {
  const alm_tensor& first = states.front();
  const alm_tensor& last = states.back();
  if (first.rank > 4) refuse_tensor(names[0], "has more dimensions than a state");
  if (last.dtype != first.dtype || last.rank != first.rank)
    refuse_tensor(names.back(), "must have the dtype and rank of the first state");
  alm_tensor all = first;
  for (int i = 0; i < first.rank; ++i) {
    const bool one = first.shape[i] <= 1;  // then its stride says nothing
    if (last.shape[i] != first.shape[i] || (!one && last.strides[i] != first.strides[i]))
      refuse_tensor(names.back(), "must have the shape and strides of the first state",
                    "pass contiguous tensors, or one tensor of all states");
    all.shape[i + 1] = first.shape[i];
    all.strides[i + 1] = first.strides[i];
  }
  const std::intptr_t distance = address_of(last) - address_of(first);
  if (distance % bytes_of(all.dtype) != 0)
    refuse_tensor(names.back(), "must lie a whole number of elements from the first state");
  all.rank = first.rank + 1;
  all.shape[0] = static_cast<std::int64_t>(states.size());
  all.strides[0] = distance / bytes_of(all.dtype);
  return all;
}

bool is_sequence(nb::handle object) {
  return nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object);
}

// One tensor of all states, or a list of one for each of them.
struct States {
  const char* name;
  std::deque<std::string> names;
  std::vector<alm_tensor> each;
  bool one_tensor = false;

  void read(nb::handle given, LaunchTensors* tensors) {
    one_tensor = !is_sequence(given);
    const std::size_t count = one_tensor ? 1 : nb::len(given);
    if (count < 1 || count > 2)
      refuse_tensor(name, "must hold one state or two, given " + std::to_string(count),
                    "pass one tensor of all states");
    each.resize(count);
    if (one_tensor) return tensors->read(given, name, Use::kRead, &each[0]);
    for (std::size_t s = 0; s < count; ++s) {
      names.push_back(std::string(name) + "[" + std::to_string(s) + "]");
      const nb::object state(given[s]);
      if (state.is_none()) refuse_tensor(names.back(), "must be a tensor, given None");
      tensors->read(state, names.back().c_str(), Use::kRead, &each[s]);
    }
  }
  alm_tensor all() const { return one_tensor ? each[0] : stacked(each, names); }
};

nb::object first_of(nb::handle states) {
  return is_sequence(states) ? nb::object(states[0]) : nb::borrow(states);
}

struct Place {
  const char* name;
  alm_tensor alm_append::*tensor;
  Use use;
};
constexpr Place kAppendPlaces[] = {
    {"key", &alm_append::key, Use::kRead},
    {"value", &alm_append::value, Use::kRead},
    {"batch_indices", &alm_append::batch_indices, Use::kRead},
    {"positions", &alm_append::positions, Use::kRead},
    {"page_indptr", &alm_append::page_indptr, Use::kRead},
    {"page_indices", &alm_append::page_indices, Use::kRead},
    {"k_cache", &alm_append::k_cache, Use::kWritten},
    {"v_cache", &alm_append::v_cache, Use::kWritten},
    {"k_scale", &alm_append::k_scale, Use::kRead},
    {"v_scale", &alm_append::v_scale, Use::kRead},
    {"q", &alm_append::q, Use::kRead},
    {"q_out", &alm_append::q_out, Use::kWritten},
};

struct Mirror {
  const char* name;
  alm_index_array alm_append::*array;
};
constexpr Mirror kMirrors[] = {
    {"host_batch_indices", &alm_append::host_batch_indices},
    {"host_positions", &alm_append::host_positions},
    {"host_page_indptr", &alm_append::host_page_indptr},
    {"host_page_indices", &alm_append::host_page_indices},
};

}  // namespace

void merge(KernelObject& kernel, nb::handle outs, nb::handle lses, nb::handle out, nb::handle lse,
           nb::handle stream) {
  alm_merge tensors = zeroed<alm_merge>();
  LaunchTensors launch(kernel.context(), "outs");
  States in{"outs", {}, {}};
  States in_lse{"lses", {}, {}};
  in.read(outs, &launch);
  in_lse.read(lses, &launch);
  launch.read(out, "out", Use::kWritten, &tensors.o);
  launch.read(lse, "lse", Use::kWritten, &tensors.lse);
  const std::uintptr_t address = launch.stream(stream, first_of(outs));
  const nb::gil_scoped_release released;
  launch.launch(address, [&] {
    tensors.o_in = in.all();
    tensors.lse_in = in_lse.all();
    kernel.kernel().merge(tensors, stream_of(address));
  });
}

void append(KernelObject& kernel, const nb::tuple& given, const nb::tuple& host, float rope_scale,
            float rope_theta, nb::handle stream) {
  alm_append tensors = zeroed<alm_append>();
  LaunchTensors launch(kernel.context(), "key");
  // REQUIRES: `given` in the order of kAppendPlaces.
  for (std::size_t i = 0; i < std::size(kAppendPlaces); ++i) {
    const Place& place = kAppendPlaces[i];
    launch.read(nb::object(given[i]), place.name, place.use, &(tensors.*place.tensor));
  }
  std::deque<Indices> mirrors;
  for (std::size_t i = 0; i < nb::len(host); ++i) {
    mirrors.push_back(borrow_indices(nb::object(host[i]), kMirrors[i].name));
    tensors.*kMirrors[i].array = mirrors.back().view();
  }
  tensors.rope_scale = rope_scale;
  tensors.rope_theta = rope_theta;
  const std::uintptr_t address = launch.stream(stream, nb::object(given[0]));
  const nb::gil_scoped_release released;
  launch.launch(address, [&] { kernel.kernel().append(tensors, stream_of(address)); });
}

void page_copy(KernelObject& kernel, nb::handle pairs, nb::handle k_cache, nb::handle v_cache,
               nb::handle host_pairs, nb::handle stream) {
  alm_page_copy tensors = zeroed<alm_page_copy>();
  LaunchTensors launch(kernel.context(), "pairs");
  launch.read(pairs, "pairs", Use::kRead, &tensors.pairs);
  launch.read(k_cache, "k_cache", Use::kWritten, &tensors.k_cache);
  launch.read(v_cache, "v_cache", Use::kWritten, &tensors.v_cache);
  const Indices mirror = borrow_indices(host_pairs, "host_pairs");
  tensors.host_pairs = mirror.view();
  const std::uintptr_t address = launch.stream(stream, pairs);
  const nb::gil_scoped_release released;
  launch.launch(address, [&] { kernel.kernel().page_copy(tensors, stream_of(address)); });
}

}  // namespace attnloom::python
