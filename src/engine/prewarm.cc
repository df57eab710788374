// SPDX-License-Identifier: Apache-2.0
#include "engine/prewarm.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

namespace attnloom {
namespace {

// One kernel to make, and where its row stands.
struct Job {
  std::shared_ptr<KernelSet> kernels;
  int index = 0;
  std::size_t row = 0;
};

class Prewarm {
 public:
  Prewarm(Engine& engine, const PrewarmOptions& options) : engine_(engine), options_(options) {}

  void add(const PrewarmItem& item, const std::optional<Target>& target);
  PrewarmReport run();

 private:
  bool is_ours(const std::string& request_key);
  void do_job(Job& job);
  Status check_kept(const AcquiredKernel& kernel);
  void report(const PrewarmRow& row);
  void do_jobs();
  void pin();

  Engine& engine_;
  const PrewarmOptions& options_;
  PrewarmReport report_;
  std::vector<Job> jobs_;
  std::set<std::string> keys_;
  std::mutex done_mutex_;
};

// The first digits of a SHA-256 are as good as any.
std::uint32_t shard_of(const std::string& request_key, std::uint32_t count) {
  return static_cast<std::uint32_t>(std::stoul(request_key.substr(0, 8), nullptr, 16)) % count;
}

bool Prewarm::is_ours(const std::string& request_key) {
  if (!keys_.insert(request_key).second) {
    ++report_.duplicates;
    return false;
  }
  const bool ours = shard_of(request_key, options_.shard.count) == options_.shard.index;
  if (!ours) ++report_.elsewhere;
  return ours;
}

void Prewarm::add(const PrewarmItem& item, const std::optional<Target>& target) {
  ParsedSpec parsed = item.parsed;
  if (target) parsed.spec.target = target;
  PrewarmRow row;
  row.label = item.label;
  row.target = parsed.spec.target ? parsed.spec.target->name() : "";
  Result<std::shared_ptr<KernelSet>> kernels = engine_.open(parsed);
  if (!kernels.ok()) {
    // It has no key to be shared out by.
    row.status = kernels.status();
    if (options_.shard.index == 0) report_.rows.push_back(std::move(row));
    return;
  }
  row.target = kernels.value()->spec().target->name();
  const std::vector<KernelChoice> choices = kernels.value()->choices();
  for (int i = 0; i < kernels.value()->size(); ++i) {
    row.choice = choices[i];
    const Result<std::string> key = kernels.value()->request_key(i);
    row.status = key.status();
    row.request_key = key.ok() ? key.value() : "";
    if (key.ok()) {
      if (!is_ours(key.value())) continue;
      jobs_.push_back({kernels.value(), i, report_.rows.size()});
    }
    report_.rows.push_back(row);
  }
}

// Steps that spilled count too: a look-up walks over them to the one in use.
Status Prewarm::check_kept(const AcquiredKernel& kernel) {
  Store& store = engine_.store();
  if (store.root().empty()) return ok_status();
  std::vector<std::string> keys = {kernel.request_key};
  for (const SteppedDown& step : kernel.stepped_down) keys.push_back(step.request_key);
  for (const std::string& key : keys) {
    if (store.find(key, kernel.target, {.cubin = true, .ptx = false}, 0)) continue;
    return make_error(Code::kCacheIo, "",
                      "it was compiled and could not be kept in " + store.root(),
                      "see the warning above: the disk may be full or the directory read-only");
  }
  return ok_status();
}

void Prewarm::do_job(Job& job) {
  PrewarmRow& row = report_.rows[job.row];
  const auto begin = std::chrono::steady_clock::now();
  AcquiredKernel kernel;
  if (options_.check_only) {
    Result<AcquiredKernel> found = job.kernels->look_up(job.index);
    row.status = found.status();
    if (found.ok()) kernel = std::move(found).value();
  } else {
    const Result<const AcquiredKernel*> made =
        job.kernels->acquire(job.index, nullptr, {.priority = Priority::kPrewarm});
    row.status = made.status();
    if (made.ok()) kernel = *made.value();
    if (row.status.ok()) row.status = check_kept(kernel);
  }
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  job.kernels.reset();
  if (!row.status.ok()) return;
  row.choice = kernel.choice;
  row.request_key = kernel.request_key;
  row.kernel_key = kernel.kernel_key;
  row.origin = origin_name(kernel.origin);
  for (const SteppedDown& step : kernel.stepped_down) row.all_keys.push_back(step.request_key);
  row.all_keys.push_back(kernel.request_key);
}

void Prewarm::report(const PrewarmRow& row) {
  if (!options_.done) return;
  const std::lock_guard lock(done_mutex_);
  options_.done(row);
}

void Prewarm::do_jobs() {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs_.size(); i = next++) {
      do_job(jobs_[i]);
      report(report_.rows[jobs_[i].row]);
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < std::min<int>(options_.jobs, static_cast<int>(jobs_.size())); ++i)
    others.emplace_back(work);
  work();
}  // joins the others

// Keys that are pinned count once: a smaller tile may serve several rows.
void Prewarm::pin() {
  if (!options_.pin || options_.check_only || !report_.pin_status.ok()) return;
  std::set<std::string> keys;
  for (const PrewarmRow& row : report_.rows) {
    if (!row.request_key.empty()) keys.insert(row.request_key);
    keys.insert(row.all_keys.begin(), row.all_keys.end());
  }
  report_.pin_status = engine_.store().pin({keys.begin(), keys.end()});
  report_.pinned = report_.pin_status.ok() ? keys.size() : 0;
}

PrewarmReport Prewarm::run() {
  if (options_.begin) options_.begin(report_.rows.size());
  for (const PrewarmRow& row : report_.rows)
    if (!row.status.ok()) report(row);
  // Before, too: a manifest larger than the cache must not lose its first kernels to its last.
  pin();
  do_jobs();
  pin();
  return std::move(report_);
}

}  // namespace

PrewarmReport prewarm(Engine& engine, const std::vector<PrewarmItem>& items,
                      const PrewarmOptions& options) {
  Prewarm prewarm(engine, options);
  for (const PrewarmItem& item : items) {
    if (item.targets.empty()) prewarm.add(item, std::nullopt);
    for (const Target& target : item.targets) prewarm.add(item, target);
  }
  return prewarm.run();
}

}  // namespace attnloom
