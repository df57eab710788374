// SPDX-License-Identifier: Apache-2.0
// What the opaque handles of attnloom.h are. Ownership: as there, whoever creates one destroys it.
#pragma once

#include <memory>

#include "attnloom/attnloom.h"
#include "engine/engine.h"
#include "engine/pending.h"
#include "engine/plan_object.h"
#include "plan/block_sparse/block_sparse.h"

struct alm_context {
  std::unique_ptr<attnloom::Engine> engine;
};

struct alm_kernel {
  std::shared_ptr<attnloom::KernelSet> kernels;
};

struct alm_pending {
  std::shared_ptr<attnloom::Pending> pending;
};

struct alm_plan {
  std::unique_ptr<attnloom::PlanObject> plan;
  // Of the current call; kept so that their memory is reused.
  attnloom::AttentionTensors tensors;
  attnloom::Workload workload;
};

struct alm_block_sparse {
  attnloom::BlockSparse sparse;
};
