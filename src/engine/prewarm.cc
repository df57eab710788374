// SPDX-License-Identifier: Apache-2.0
#include "engine/prewarm.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace attnloom {
namespace {

// One kernel to make, and where its row stands.
struct Job {
  std::shared_ptr<KernelSet> kernels;
  int index = 0;
  std::size_t row = 0;
};

PrewarmRow failed_row(const PrewarmItem& item, const std::string& target, Status status) {
  PrewarmRow row;
  row.label = item.label;
  row.target = target;
  row.status = std::move(status);
  return row;
}

void add_jobs(Engine& engine, const PrewarmItem& item, const std::optional<Target>& target,
              std::vector<Job>& jobs, std::vector<PrewarmRow>& rows) {
  ParsedSpec parsed = item.parsed;
  if (target) parsed.spec.target = target;
  const std::string name = parsed.spec.target ? parsed.spec.target->name() : "";
  Result<std::shared_ptr<KernelSet>> kernels = engine.open(parsed);
  if (!kernels.ok()) {
    rows.push_back(failed_row(item, name, kernels.status()));
    return;
  }
  const std::vector<KernelChoice> choices = kernels.value()->choices();
  for (int i = 0; i < kernels.value()->size(); ++i) {
    PrewarmRow row = failed_row(item, kernels.value()->spec().target->name(), ok_status());
    row.family = choices[i].family;
    jobs.push_back({kernels.value(), i, rows.size()});
    rows.push_back(std::move(row));
  }
}

void fill(PrewarmRow& row, const AcquiredKernel& kernel) {
  row.request_key = kernel.request_key;
  row.kernel_key = kernel.kernel_key;
  row.origin = origin_name(kernel.origin);
}

void do_job(const Job& job, bool check_only, PrewarmRow& row) {
  if (const Result<std::string> key = job.kernels->request_key(job.index); key.ok())
    row.request_key = key.value();
  if (check_only) {
    const Result<AcquiredKernel> found = job.kernels->look_up(job.index);
    row.status = found.status();
    if (found.ok()) fill(row, found.value());
    return;
  }
  const Result<const AcquiredKernel*> made =
      job.kernels->acquire(job.index, nullptr, {.priority = Priority::kPrewarm});
  row.status = made.status();
  if (made.ok()) fill(row, *made.value());
}

}  // namespace

std::vector<PrewarmRow> prewarm(Engine& engine, const std::vector<PrewarmItem>& items,
                                const PrewarmOptions& options) {
  std::vector<Job> jobs;
  std::vector<PrewarmRow> rows;
  for (const PrewarmItem& item : items) {
    if (item.targets.empty()) add_jobs(engine, item, std::nullopt, jobs, rows);
    for (const Target& target : item.targets) add_jobs(engine, item, target, jobs, rows);
  }
  std::mutex done_mutex;
  const auto report = [&](const PrewarmRow& row) {
    if (!options.done) return;
    const std::lock_guard lock(done_mutex);
    options.done(row);
  };
  for (const PrewarmRow& row : rows)
    if (!row.status.ok()) report(row);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      do_job(jobs[i], options.check_only, rows[jobs[i].row]);
      report(rows[jobs[i].row]);
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < std::min<int>(options.jobs, static_cast<int>(jobs.size())); ++i)
    others.emplace_back(work);
  work();
  others.clear();  // joins
  return rows;
}

}  // namespace attnloom
