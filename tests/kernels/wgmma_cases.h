// SPDX-License-Identifier: Apache-2.0
// Cases that name the warpgroup kernels, and what is asked of all of them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/kernel_rig.h"

namespace attnloom::testing {

struct Shape {
  std::vector<int> qo_len;
  std::vector<int> kv_len;
  int group = 4;
  int kv_heads = 2;
};

struct Kernel {
  Json variant = {{"name", "plain"}, {"mask", {{"causal", true}}}};
  Json layout = {{"kv", "ragged"}};
  int qk = 128;
  int vo = 128;
  int q_tile = 128;
  int kv_tile = 128;
  const char* dtype = "bf16";
};

Json wgmma_case(const Kernel& kernel, const Shape& shape, const Json& params = {},
                const Json& workload = {});

Json variant(const char* name, bool causal, const Json& more = {});

Json paged(int page_size);

// "" or what is wrong. `sm_count` 0: the device's own.
std::string judge_wgmma(Engine& engine, const CaseFile& file, int sm_count, int launches = 1);

// Agrees with the reference on all SMs, and on two, whose queues are long.
void check_wgmma(const Json& json);

// A planted fault.
struct WgmmaMutant {
  const char* name;
  const char* header;
  const char* from;
  const char* to;
  int group = 4;
  int page = 16;
};

// On one SM, so that stages and slots come round.
void check_noticed(const WgmmaMutant& mutant, const CaseFile& file);
void check_clean(const CaseFile& file);

}  // namespace attnloom::testing
